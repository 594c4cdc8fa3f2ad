/*
 * The MySQL source for C++17, as snowshed.hpp has the rest; link as for C.
 *
 *     auto source = shed::mysql_source::open(
 *         "mysql://shop:secret@localhost/shop",
 *         "SELECT id, name FROM item WHERE id IN (?)").value();
 *     auto items = shed::cache::open(client, "item", source).value();
 */
#ifndef SNOWSHED_MYSQL_HPP
#define SNOWSHED_MYSQL_HPP

#include <string_view>

#include <snowshed/mysql.h>
#include <snowshed/snowshed.hpp>

namespace shed
{

struct mysql_source {
    static result<source> open(std::string_view uri, std::string_view query,
                               const shed_mysql_options *options = nullptr)
    {
        struct shed_source *handle = nullptr;
        shed::error err;
        if (shed_mysql_source_open(detail::terminated(uri).c_str(),
                                   detail::terminated(query).c_str(), options,
                                   &handle, &err) != SHED_OK)
            return err;
        return source::adopt(handle);
    }
};

} // namespace shed

#endif
