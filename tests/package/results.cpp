// The results of snowshed.hpp, with exceptions or without: value() of a result
// that has none fails loudly, so that no program goes on with it.
//
// usage: results        exits with 0 where value() throws, aborts where it
// cannot
#include <cstdio>
#include <cstdlib>
#include <string>

#include <snowshed/snowshed.hpp>

static void require(bool holds, const char *what)
{
    if (holds)
        return;
    std::fprintf(stderr, "results: %s\n", what);
    std::exit(1);
}

static void fail()
{
    (void)shed::client::open("nonsense").value();
}

int main()
{
    shed::result<std::string> text(std::string("text"));
    const shed::result<std::string> none(shed::error{SHED_EBUSY, "no text"});

    require(text.value() == "text" && text.value_or("other") == "text",
            "a value");
    text.value() += "s";
    require(std::move(text).value() == "texts", "a value that is moved");
    require(none.value_or("other") == "other" &&
                shed::result<int>(none.error()).value_or(7) == 7,
            "what stands in for a value");
    shed::result<void>().value();
#if defined(__cpp_exceptions)
    try {
        fail();
    } catch (const shed::bad_result &e) {
        require(e.error().code == SHED_EINVAL &&
                    e.what() == std::string("SHED_EINVAL: ") + e.error().reason,
                "what is thrown");
        try {
            shed::result<void>(none.error()).value();
        } catch (const std::runtime_error &) {
            return 0;
        }
    }
    return 1;
#else
    fail();
    return 0;
#endif
}
