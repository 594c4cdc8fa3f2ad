// A C++ program on snowshed.hpp, outside the tree: it uses every class of the
// wrapper once, against a real Redis.
//
// usage: wrapper REDIS-URI
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <future>
#include <string>
#include <thread>

#include <snowshed/snowshed.hpp>

static void require(bool holds, const char *what)
{
    if (holds)
        return;
    std::fprintf(stderr, "wrapper: %s\n", what);
    std::exit(1);
}

template <class T> static T &require(shed::result<T> &result, const char *what)
{
    if (!result) {
        std::fprintf(stderr, "wrapper: %s: %s: %s\n", what,
                     shed_code_name(result.code()), result.error().reason);
        std::exit(1);
    }
    return *result;
}

static void use_cache(const shed::cache &cache, const std::atomic<int> &loads)
{
    require(bool(cache.expire("a")), "expire");
    require(bool(cache.invalidate("a")), "invalidate");
    auto loaded = cache.get("a");
    require(require(loaded, "get").view() == "row of a", "the row");
    require(loaded->origin() == SHED_ORIGIN_LOAD, "its origin");
    require(loaded->fresh_ms() > 0, "how long it is fresh");
    shed::value copy = *loaded;
    loaded = cache.get("a");
    require(require(loaded, "get").origin() == SHED_ORIGIN_REDIS, "a hit");
    require(copy.view() == loaded->view() && loads == 1, "one load");

    auto absent = cache.get("absent");
    require(require(absent, "absent").is_absent(), "no such row");
    auto failed = cache.get("failed");
    require(!failed && failed.code() == SHED_ESOURCE, "a failure");
    require(std::string(failed.error().reason).find("on purpose") !=
                std::string::npos,
            "its reason");
    require(cache.get("").code() == SHED_EINVAL, "an empty key");

    shed_get_options options = SHED_GET_OPTIONS_INIT;
    options.only_cached = 1;
    require(cache.get("not loaded", options).code() == SHED_EMISS, "a miss");
    auto cached = cache.get("a", options);
    require(require(cached, "get").view() == "row of a", "what is cached");
    auto misses = cache.get_many({"a", "not loaded"}, options);
    require(misses[0] && misses[1].code() == SHED_EMISS, "many without a load");

    require(bool(cache.put("b", "another row")), "put");
    require(bool(cache.put_version("c", "second", 2)), "put_version");
    require(bool(cache.put_version("c", "first", 1)), "a lower version");
    require(cache.get("c")->view() == "second", "the higher one stays");
    auto many = cache.get_many({"a", "b", "absent"});
    require(many.size() == 3 && many[0] && many[1] && many[2], "get_many");
    require(many[1]->view() == "another row", "the second of many");
    require(many[2]->is_absent(), "the third of many");
}

static void use_groups(const shed::client &client, const shed::source &source)
{
    shed_cache_options options = SHED_CACHE_OPTIONS_INIT;
    options.groups = 10;
    auto cache = shed::cache::open(client, "wrapper-groups", source, &options);
    require(bool(cache), "a cache with groups");
    const auto blue = shed::to_bytes("blue");
    shed_put_options tagged = SHED_PUT_OPTIONS_INIT;
    tagged.tags = &blue;
    tagged.tags_count = 1;
    require(bool(cache->invalidate_all()), "invalidate_all");
    require(cache->get("a")->origin() == SHED_ORIGIN_LOAD, "a load");
    require(bool(cache->put("b", "put", tagged)), "put with a tag");
    require(bool(cache->invalidate_tags({"red", "blue"})), "invalidate_tags");
    require(cache->get("a")->origin() == SHED_ORIGIN_LOAD, "its tag");
    require(cache->get("b")->view() == "row of b", "the other tag");
}

static void use_lock(const shed::client &client)
{
    auto lock = shed::lock::open(client, "wrapper");
    auto rival = shed::lock::open_quorum({&client}, "wrapper");
    require(lock && rival, "locks");
    {
        auto hold = lock->acquire(10000);
        require(require(hold, "acquire").is_mine(), "the hold");
        require(hold->remaining_ms() > 0, "its time");
        require(bool(hold->extend()), "extend");
        auto fence = hold->fence();
        require(require(fence, "fence").number > 0, "a token");
        std::thread([&] {
            auto refused = rival->acquire(0);
            require(refused.code() == SHED_ETIMEDOUT, "exclusion");
        }).join();
    }
    auto hold = rival->acquire(10000);
    require(require(hold, "acquire after release").is_mine(), "the next hold");
    require(bool(hold->release()), "release");
}

static shed::result<void> wait_for(std::future<shed::result<void>> future)
{
    return future.get();
}

static void use_lock_async(const shed::client &client)
{
    auto lock = shed::lock::open(client, "wrapper-async");
    auto rival = shed::lock::open(client, "wrapper-async");
    require(lock && rival, "locks");
    std::promise<shed::result<void>> held, cancelled, released, unused;
    require(bool(lock->acquire_async(
                10000, [&](shed::result<void> r) { held.set_value(r); })),
            "acquire_async");
    require(bool(wait_for(held.get_future())), "an asynchronous hold");
    auto pending = rival->acquire_async(
        10000, [&](shed::result<void> r) { cancelled.set_value(r); });
    require(pending && pending->cancel(), "cancel");
    require(wait_for(cancelled.get_future()).code() == SHED_ETIMEDOUT,
            "a cancelled acquire");
    require(!pending->cancel(), "a second cancel");
    require(bool(lock->release_async(
                [&](shed::result<void> r) { released.set_value(r); })),
            "release_async");
    require(bool(wait_for(released.get_future())), "an asynchronous release");
    require(lock->release().code() == SHED_ELOST, "a second release");
    require(lock->release_async([&](shed::result<void> r) {
                    unused.set_value(r);
                }).code() == SHED_ELOST,
            "a third release");
}

static void use_all(const char *uri, const shed_client_options &options,
                    std::atomic<int> &loads)
{
    auto client = shed::client::open(uri, &options);
    require(client, "client");
    auto source = shed::source::open([&loads](shed::batch batch) {
        for (std::size_t i = 0; i < batch.count(); i++) {
            loads++;
            batch.version(i, 1);
            batch.ttl(i, 60000);
            batch.tag(i, "red");
            if (batch.old_version(i))
                batch.unmodified(i);
            else if (batch.key(i) == "absent")
                batch.absent(i);
            else if (batch.key(i) == "failed")
                batch.fail(i, "on purpose");
            else
                batch.value(i, "row of " + std::string(batch.key(i)));
        }
    });
    require(source, "source");
    auto cache = shed::cache::open(*client, "wrapper", *source);
    use_cache(require(cache, "cache"), loads);
    auto status = client->status();
    require(status && status->is_up == 1 && status->breaker == 0,
            "the client is connected, and its breaker is closed");
    use_groups(*client, *source);
    use_lock(*client);
    use_lock_async(*client);
    require(!shed::client::open("nonsense"), "a wrong URI");
}

int main(int argc, char **argv)
{
    std::atomic<int> loads{0}, told{0};
    shed_client_options options = SHED_CLIENT_OPTIONS_INIT;
    auto count = [&told](const shed::event &event) {
        const char *kind = shed_event_kind_name(event.kind);
        if (kind == std::string("load finished"))
            told++;
    };

    require(argc == 2, "usage: wrapper REDIS-URI");
    options.redis_breaker_failure_pct = 50;
    shed::on_event(options, count);
    use_all(argv[1], options, loads);
    require(told == loads, "an event of each load");
}
