// A C++ program on snowshed.hpp, outside the tree: it calls every function of
// the wrapper (tests/package/check_calls looks), with a real Redis and, built
// with snowshed-mysql, with a real database.
//
// usage: wrapper REDIS-URI [MYSQL-URI]
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <future>
#include <optional>
#include <string>
#include <thread>

#include <poll.h>

#include <snowshed/snowshed.hpp>
#ifdef WITH_MYSQL
#include <snowshed/mysql.hpp>
#endif

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
    const shed::value again = copy;
    copy = again;
    require(copy.view() == "row of a", "a copy that was copied back");

    loaded = cache.get("null");
    require(require(loaded, "null").is_null() && !loaded->is_row(), "a NULL");
    require(loaded->age_ms() < 600000, "its age");
    require(cache.get("long").code() == SHED_ETOOBIG, "a row that is too long");
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
    require(bool(cache.put("c", "second", {{}, 2})), "put of a version");
    require(bool(cache.put("c", "first", {{}, 1})), "a lower version");
    require(cache.get("c")->view() == "second", "the higher one stays");
    auto many = cache.get_many({"a", "b", "absent"});
    require(many.size() == 3 && many[0] && many[1] && many[2], "get_many");
    require(many[1]->view() == "another row", "the second of many");
    require(many[2]->is_absent(), "the third of many");
    many = cache.get_many({"failed", "a", "long"});
    require(many[1] && many[0].code() == SHED_ESOURCE &&
                many[2].code() == SHED_ETOOBIG,
            "two of many fail");
    require(std::string(many[0].error().reason).find("on purpose") !=
                    std::string::npos &&
                std::string(many[2].error().reason).find("on purpose") ==
                    std::string::npos,
            "each for a reason of its own");
    require(cache.get_many({"a", ""})[0].code() == SHED_EINVAL,
            "many with an empty key");
    require(shed::escaped("a\n\\") == "a\\x0a\\\\", "a key as text");

    const std::vector<std::string> keys = {"b", "c"};
    require(bool(cache.invalidate_many(keys)), "invalidate_many");
    require(cache.get("b", options).code() == SHED_EMISS &&
                cache.get("c", options).code() == SHED_EMISS,
            "both are gone");
}

static bool has_line(const std::string &text, const char *line)
{
    return text.find(std::string("\n") + line + "\n") != std::string::npos;
}

template <class T> struct ending {
    std::optional<shed::result<T>> result;
    std::function<void(shed::result<T>)> done()
    {
        return [this](shed::result<T> r) { result = std::move(r); };
    }
};

template <class T>
static shed::result<T> &await(ending<T> &e, const shed::queue &queue)
{
    struct pollfd fd = {queue.fd(), POLLIN, 0};
    while (!e.result && poll(&fd, 1, 10000) > 0)
        (void)queue.collect(10);
    require(e.result.has_value(), "the end of an asynchronous call");
    return *e.result;
}

static void use_async(const shed::cache &cache)
{
    auto queue = shed::queue::open();
    ending<shed::value> got, failed;
    ending<void> invalidated, put;
    const shed::queue &q = require(queue, "queue");

    require(bool(cache.invalidate_async("a", invalidated.done(), &q)),
            "invalidate_async");
    require(bool(await(invalidated, q)), "an invalidation");
    require(bool(cache.get_async("a", got.done(), &q)), "get_async");
    require(require(await(got, q), "get").view() == "row of a", "the row");
    require(bool(cache.get_async("failed", failed.done(), &q)), "get_async");
    require(await(failed, q).code() == SHED_ESOURCE, "a failure");
    require(bool(cache.put_async("a", "another", put.done(), &q)), "put_async");
    require(bool(await(put, q)), "a put");
    require(cache.get("a")->view() == "another", "what was put");
    require(bool(cache.invalidate("a")), "invalidate");
    require(!cache.get_async("", got.done(), &q), "a key that is empty");

    std::promise<bool> ended;
    auto pending = cache.get_async(
        "a", [&](shed::result<shed::value> r) { ended.set_value(bool(r)); });
    require(require(pending, "get_async") != nullptr, "a call");
    require(ended.get_future().get(), "without a queue");
}

static void use_statistics(const shed::cache &cache)
{
    auto stats = cache.stats();
    require(require(stats, "stats").puts == 3, "three puts");
    require(has_line(shed::stats_prometheus({&cache}),
                     "snowshed_puts_total{cache=\"wrapper\"} 3"),
            "the puts are in the text");
    require(shed::stats_prometheus({}).empty(), "the text of no cache");
}

static void use_tags(const shed::client &client, const shed::source &source)
{
    shed_cache_options options = SHED_CACHE_OPTIONS_INIT;
    options.tags_limit = 10;
    auto cache = shed::cache::open(client, "wrapper-tags", source, &options);
    require(bool(cache), "a cache with tags");
    require(bool(cache->invalidate("b")), "invalidate");
    require(bool(cache->invalidate_all()), "invalidate_all");
    require(cache->get("a")->origin() == SHED_ORIGIN_LOAD, "a load");
    shed::put_options tagged;
    tagged.tags = {"blue", "green"};
    tagged.version = 7;
    require(bool(cache->put("b", "put", tagged)), "put with tags");
    tagged.version = 6;
    require(bool(cache->put("b", "late", tagged)), "put of a lower version");
    require(cache->get("b")->view() == "put", "the higher one stays");
    const std::vector<std::string> tags = {"square", "green"};
    require(bool(cache->invalidate_tags(tags)), "invalidate_tags");
    require(cache->get("a")->origin() == SHED_ORIGIN_LOAD, "a tag of a load");
    require(cache->get("b")->view() == "row of b", "a tag of a put");
    require(bool(cache->invalidate_tags({"red"})), "one tag");
    require(cache->get("b")->origin() == SHED_ORIGIN_LOAD, "the other tag");
    shed::put_options brief;
    brief.ttl_ms = 1000;
    require(bool(cache->put("a", "brief", brief)), "put with a ttl");
    require(cache->get("a")->fresh_ms() <= 1000, "the ttl of the put");
}

static void use_lock(const shed::client &client)
{
    auto lock = shed::lock::open(client, "wrapper");
    auto rival = shed::lock::open_quorum({&client}, "wrapper");
    require(lock && rival, "locks");
    {
        auto hold = lock->acquire(10000);
        require(bool(hold) && lock->is_mine(), "the hold");
        require(lock->remaining_ms() > 0, "its time");
        require(bool(lock->extend()), "extend");
        auto fence = lock->fence();
        require(require(fence, "fence").number > 0, "a token");
        std::thread([&] {
            auto refused = rival->acquire(0);
            require(refused.code() == SHED_ETIMEDOUT, "exclusion");
        }).join();
    }
    auto hold = rival->acquire(10000);
    auto moved = std::move(require(hold, "acquire after release"));
    require(rival->is_mine(), "a hold that was moved");
    const auto number = rival->fence()->number;
    require(bool(moved.release()), "release");
    require(bool(lock->advance(number + 1000)), "advance");
    auto last = lock->acquire(10000);
    moved = std::move(require(last, "the last acquire"));
    require(lock->fence()->number > number + 1000, "the number was advanced");

    auto stats = lock->stats();
    require(require(stats, "stats").acquired == 2, "two holds");
    require(has_line(shed::stats_prometheus({}, {&*lock}),
                     "snowshed_lock_acquired_total{lock=\"wrapper\"} 2"),
            "the holds are in the text");
}

// Without a watchdog a hold ends with its lease.
static void lose_lock(const shed::client &client)
{
    std::promise<enum shed_code> lost;
    auto on_lost = [&lost](const shed::error &reason) {
        lost.set_value(reason.code);
    };
    shed_lock_options options = SHED_LOCK_OPTIONS_INIT;
    options.lease_ms = 1000;
    options.watchdog_ms = 0;
    shed::on_lost(options, on_lost);
    auto lock = shed::lock::open(client, "wrapper-lost", &options);
    require(bool(lock), "lock");
    auto hold = lock->acquire(10000);
    require(bool(hold), "acquire");
    require(lost.get_future().get() == SHED_ELOST, "the loss is reported");
    require(hold->release().code() == SHED_ELOST, "release of a lost hold");
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
    require(bool(lock->probe()), "the probe of a lock");
    require(lock->is_mine() && lock->fence()->number > 0, "it has a token");
    require(bool(lock->extend(60000)), "extend");
    require(lock->remaining_ms() > 30000, "its lease was extended");
    auto pending = rival->acquire_async(
        10000, [&](shed::result<void> r) { cancelled.set_value(r); });
    require(pending && rival->cancel(*pending), "cancel");
    require(wait_for(cancelled.get_future()).code() == SHED_ETIMEDOUT,
            "a cancelled acquire");
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

static shed::answer answer_of(const shed::batch &batch, std::size_t i)
{
    if (batch.remaining_ms() == 0)
        return shed::answer::failed("too late");
    if (batch.is_probe())
        return shed::answer::failed("it has no breaker");
    if (batch.old_version(i))
        return shed::answer::unmodified();
    if (batch.key(i) == "absent")
        return shed::answer::absent();
    if (batch.key(i) == "null")
        return shed::answer::null();
    if (batch.key(i) == "long")
        return shed::answer::too_big("it is long");
    if (batch.key(i) == "failed")
        return shed::answer::failed("on purpose");
    return shed::answer::row("row of " + std::string(batch.key(i)));
}

/* A source of one key at a time. */
static void use_single(const shed::client &client, std::atomic<int> &loads)
{
    auto source = shed::source::open([&loads](std::string_view key) {
        loads++;
        std::vector<shed::answer> made;
        made.push_back(shed::answer::row("one of " + std::string(key)));
        made[0].tags = {"red"};
        return made[0];
    });
    auto cache = shed::cache::open(client, "wrapper-single",
                                   require(source, "one-key source"));
    require(bool(require(cache, "cache").invalidate("k")), "invalidate");
    require(cache->get("k").value().view() == "one of k", "a one-key load");
}

static void use_all(const char *uri, const shed_client_options &options,
                    std::atomic<int> &loads)
{
    auto client = shed::client::open(std::string_view(uri), &options);
    require(client, "client");
    auto source = shed::source::open_batch([&loads](shed::batch batch) {
        for (std::size_t i = 0; i < batch.count(); i++) {
            loads++;
            shed::answer answer = answer_of(batch, i);
            answer.version = 1;
            answer.ttl_ms = 60000;
            answer.tags = {"red", "round", "square"};
            batch.answer(i, answer);
        }
    });
    require(source, "source");
    const std::string_view named = "wrapper, and more";
    auto cache = shed::cache::open(*client, named.substr(0, 7), *source);
    use_cache(require(cache, "cache"), loads);
    use_statistics(*cache);
    use_async(*cache);
    require(bool(cache->probe()), "probe");
    auto status = client->status();
    require(status && status->is_up == 1 && status->breaker == 0,
            "the client is connected, and its breaker is closed");
    use_tags(*client, *source);
    use_single(*client, loads);
    use_lock(*client);
    use_lock_async(*client);
    lose_lock(*client);
    require(!shed::client::open("nonsense"), "a wrong URI");
    require(!shed::client::open(std::string("nonsense")), "a wrong string");
    const char *nothing = nullptr;
    require(shed::client::open(nothing).code() == SHED_EINVAL, "no URI");
    const std::string_view cut("name\0 and more", 14);
    require(shed::cache::open(*client, cut, *source).code() == SHED_EINVAL,
            "a name with a zero byte");
}

#ifdef WITH_MYSQL
static void use_mysql(const char *redis_uri, const char *uri)
{
    auto source = shed::mysql_source::open(
        uri, "SELECT 'k', 'a row' FROM dual WHERE 'k' IN (?)");
    require(shed::mysql_source::open(uri, "SELECT 1").code() == SHED_EINVAL,
            "a query without a place for the keys");
    auto client = shed::client::open(redis_uri);
    auto cache = shed::cache::open(require(client, "client"), "wrapper-mysql",
                                   require(source, "source"));
    require(bool(require(cache, "cache").invalidate("k")), "invalidate");
    auto row = cache->get("k");
    require(require(row, "get").view() == "a row", "the row of the database");
    require(row->origin() == SHED_ORIGIN_LOAD, "its origin");
}
#endif

int main(int argc, char **argv)
{
    std::atomic<int> loads{0}, told{0}, lines{0};
    shed_client_options options = SHED_CLIENT_OPTIONS_INIT;
    auto count = [&told](const shed::event &event) {
        const char *kind = shed_event_kind_name(event.kind);
        if (kind == std::string("load finished"))
            told++;
    };

    auto log = [&lines](enum shed_log_level level, std::string_view text) {
        if (level == SHED_LOG_INFO &&
            text.substr(0, 18) == "connected to Redis")
            lines++;
    };

    require(argc > 1, "usage: wrapper REDIS-URI [MYSQL-URI]");
    options.breaker.failure_pct = 50;
    shed::on_event(options, count);
    shed::on_log(options, log);
    use_all(argv[1], options, loads);
    require(told == loads, "an event of each load");
    require(lines == 1, "a line of the log tells that it is connected");
#ifdef WITH_MYSQL
    if (argc > 2)
        use_mysql(argv[1], argv[2]);
#endif
}
