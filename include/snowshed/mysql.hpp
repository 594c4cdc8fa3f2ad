/*
 * mysql.h for C++17, as snowshed.hpp has the rest; link as for C.
 *
 *     auto source = shed::mysql_source::open(
 *         "mysql://shop:secret@localhost/shop",
 *         "SELECT id, name FROM item WHERE id IN (?)").value();
 *     auto items = shed::cache::open(client, "item", source).value();
 */
#ifndef SNOWSHED_MYSQL_HPP
#define SNOWSHED_MYSQL_HPP

#include <snowshed/mysql.h>
#include <snowshed/snowshed.hpp>

namespace shed
{

struct mysql_source {
    static result<source> open(const detail::text &uri,
                               const detail::text &query,
                               const shed_mysql_options *options = nullptr)
    {
        return detail::open<source, struct shed_source>(
            shed_mysql_source_open, uri.c_str(), query.c_str(), options);
    }
};

/* For a handle of mysql_init, which the caller closes. */
inline result<void> mysql_connect(void *mysql, const detail::text &uri,
                                  const shed_mysql_options *options = nullptr,
                                  unsigned long client_flags = 0)
{
    return detail::call(shed_mysql_connect, mysql, uri.c_str(), options,
                        client_flags);
}

/* newest gets the newest number that was accepted, for shed_lock_advance. */
inline result<void> mysql_fence(void *mysql, std::string_view resource,
                                const shed_fence &fence,
                                std::uint64_t *newest = nullptr)
{
    return detail::call(shed_mysql_fence, mysql, to_bytes(resource), &fence,
                        newest);
}

} // namespace shed

#endif
