/*
 * snowshed for C++17: handles that close themselves, string views for keys and
 * payloads, and results instead of codes. Header-only; link as for C. Nothing
 * here throws but result::value(), and it works with -fno-exceptions (only
 * memory for its own few objects comes from operator new).
 *
 *     auto client = shed::client::open("redis://localhost").value();
 *     auto source = shed::source::open([](std::string_view key) {
 *         return shed::answer::row(look_up(key));
 *     }).value(); // value() throws if there is none
 *     auto items = shed::cache::open(client, "item", source).value();
 *     auto value = items.get("42");
 *     if (!value)
 *         std::fprintf(stderr, "%s\n", value.error().reason);
 *     else if (value->is_row())
 *         use(value->view());
 *
 * What a function promises (threads, blocking, failures) is documented at the C
 * function of the same name. Handles may be destroyed in any order, but a
 * queue when each call that ends there has been collected (close the cache, collect,
 * close the queue). Each can be made of one of the C interface's, which it then
 * closes.
 *
 * It has a form of every C function, except these, which are used as they are:
 * shed_version, shed_code_name, shed_kind_name, shed_origin_name,
 * shed_event_kind_name, and shed_log_stderr, for options.on_log. mysql.hpp has
 * those of shed_mysql_source_open, shed_mysql_connect and shed_mysql_fence. Of
 * struct shed_source_options, thread_start and thread_stop are left out: a
 * thread_local object does what they do. shed_cancel is used as it is, too, and
 * so is shed_get_many_async, whose items stay with their owner.
 */
#ifndef SNOWSHED_SNOWSHED_HPP
#define SNOWSHED_SNOWSHED_HPP

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <initializer_list>
#include <iterator>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <snowshed/async.h>
#include <snowshed/event.h>
#include <snowshed/lock.h>
#include <snowshed/snowshed.h>
#include <snowshed/source.h>
#include <snowshed/stats.h>

namespace shed
{

using error = ::shed_error;

inline struct ::shed_bytes to_bytes(std::string_view text) noexcept
{
    return ::shed_bytes(text.data() != nullptr ? text.data() : "", text.size());
}

inline std::string_view to_view(struct ::shed_bytes bytes) noexcept
{
    return {static_cast<const char *>(bytes.data), bytes.size};
}

/*
 * Keys or tags: made from a list in braces, or from a container of strings or
 * string views, as in
 *
 *     cache.invalidate_tags({"red", "blue"});
 *     std::vector<std::string> keys = changed_keys();
 *     cache.invalidate_many(keys);
 *
 * It does not own their bytes: keep them valid as long as it is used.
 */
class bytes_list : std::vector<struct ::shed_bytes>
{
  public:
    using vector::begin;
    using vector::data;
    using vector::end;
    using vector::size;

    bytes_list() = default;
    bytes_list(std::initializer_list<std::string_view> texts)
    {
        add(texts);
    }
    template <class Texts,
              class = std::enable_if_t<std::is_convertible_v<
                  decltype(*std::begin(std::declval<const Texts &>())),
                  std::string_view>>>
    bytes_list(const Texts &texts)
    {
        add(texts);
    }

  private:
    template <class Texts> void add(const Texts &texts)
    {
        for (std::string_view text : texts)
            push_back(to_bytes(text));
    }
};

/* Bytes, a key say, as printable text. */
inline std::string escaped(std::string_view bytes)
{
    std::string text(shed_escape(to_bytes(bytes), nullptr, 0), ' ');
    (void)shed_escape(to_bytes(bytes), text.data(), text.size() + 1);
    return text;
}

#if defined(__cpp_exceptions)
/* What value() of a result without one throws. */
class bad_result : public std::runtime_error
{
  public:
    explicit bad_result(const shed::error &error)
        : std::runtime_error(std::string(shed_code_name(error.code)) + ": " +
                             error.reason),
          error_(error)
    {
    }
    const shed::error &error() const noexcept
    {
        return error_;
    }

  private:
    shed::error error_;
};
#endif

namespace detail
{

[[noreturn]] inline void fail_loudly(const error &why)
{
#if defined(__cpp_exceptions)
    throw bad_result(why);
#else
    std::fprintf(stderr, "shed::result::value: %s: %s\n",
                 shed_code_name(why.code), why.reason);
    std::abort();
#endif
}

} // namespace detail

/* How a call ended. */
class [[nodiscard]] outcome
{
  public:
    outcome() = default;
    outcome(const shed::error &error) : error_(error)
    {
    }
    explicit operator bool() const noexcept
    {
        return error_.code == SHED_OK;
    }
    const shed::error &error() const noexcept
    {
        return error_;
    }
    enum shed_code code() const noexcept
    {
        return error_.code;
    }

  protected:
    void check() const
    {
        if (error_.code != SHED_OK)
            detail::fail_loudly(error_);
    }

  private:
    shed::error error_ = {};
};

/*
 * A T, or why there is none. value() of one without a value throws bad_result,
 * or, with -fno-exceptions, prints the reason and aborts. To read * or -> of
 * such a result is a bug in the program, as with std::optional.
 */
template <class T> class [[nodiscard]] result : public outcome, std::optional<T>
{
  public:
    using std::optional<T>::operator*;
    using std::optional<T>::operator->;
    using std::optional<T>::value_or;
    using outcome::operator bool;

    result(T value) : std::optional<T>(std::move(value))
    {
    }
    result(const shed::error &error) : outcome(error)
    {
    }
    T &value() &
    {
        check();
        return **this;
    }
    const T &value() const &
    {
        check();
        return **this;
    }
    T value() &&
    {
        check();
        return *std::move(*this);
    }
};

template <> class [[nodiscard]] result<void> : public outcome
{
  public:
    using outcome::outcome;
    void value() const
    {
        check();
    }
};

namespace detail
{

/* The C function f with these arguments. */
template <class F, class... Arguments>
result<void> call(F f, Arguments... arguments)
{
    error err;
    if (f(arguments..., &err) != SHED_OK)
        return err;
    return {};
}

/* A T of the handle that f opens with these arguments. */
template <class T, class Handle, class F, class... Arguments>
result<T> open(F f, Arguments... arguments)
{
    Handle *handle = nullptr;
    error err;
    if (f(arguments..., &handle, &err) != SHED_OK)
        return err;
    return T(handle);
}

/* What f reads of a handle. */
template <class T, class F, class Handle> result<T> read(F f, Handle *handle)
{
    T out = {};
    error err;
    if (f(handle, &out, sizeof(out), &err) != SHED_OK)
        return err;
    return out;
}

/* A text for C, where it ends at a zero byte: none, or one that has any, is
 * empty, and is refused, because no URI, name or query is empty. */
class text : std::string
{
  public:
    using basic_string::c_str;

    text(const char *given) : basic_string(given != nullptr ? given : "")
    {
    }
    text(std::string_view given)
        : basic_string(given.find('\0') == given.npos ? given : "")
    {
    }
    text(const std::string &given) : text(std::string_view(given))
    {
    }
};

template <auto close> struct closer {
    template <class T> void operator()(T *handle) const noexcept
    {
        (void)close(handle);
    }
};

template <class Handle, class T>
std::vector<Handle *> handles(const std::vector<const T *> &things)
{
    std::vector<Handle *> handles;
    for (const T *thing : things)
        handles.push_back(thing->get());
    return handles;
}

/* Owns a handle of the C interface's. */
template <class T, auto close> class handle
{
  public:
    explicit handle(T *adopted) noexcept : handle_(adopted)
    {
    }
    T *get() const noexcept
    {
        return handle_.get();
    }

  protected:
    /* What this owned is the caller's. */
    T *give_up() noexcept
    {
        return handle_.release();
    }

  private:
    std::unique_ptr<T, closer<close>> handle_;
};

} // namespace detail

/* An answer; copies share the payload. */
class value
{
  public:
    /* Takes over a reference. */
    explicit value(struct shed_value *adopted) noexcept : value_(adopted)
    {
    }
    value(value &&) noexcept = default;
    value &operator=(value &&) noexcept = default;
    value(const value &other) noexcept
        : value_(other.value_ ? shed_value_ref(other.value_.get()) : nullptr)
    {
    }
    value &operator=(const value &other) noexcept
    {
        return *this = value(other);
    }

    enum shed_kind kind() const noexcept
    {
        return value_->kind;
    }
    bool is_row() const noexcept
    {
        return kind() == SHED_KIND_ROW;
    }
    bool is_null() const noexcept
    {
        return kind() == SHED_KIND_NULL;
    }
    bool is_absent() const noexcept
    {
        return kind() == SHED_KIND_ABSENT;
    }

    /* The payload; it lives as long as this value or a copy of it. Empty unless
     * is_row(). */
    std::string_view view() const noexcept
    {
        return {static_cast<const char *>(value_->data), value_->size};
    }
    std::uint64_t age_ms() const noexcept
    {
        return value_->age_ms;
    }
    std::uint64_t fresh_ms() const noexcept
    {
        return value_->fresh_ms;
    }
    enum shed_origin origin() const noexcept
    {
        return value_->origin;
    }

  private:
    std::unique_ptr<struct shed_value, detail::closer<shed_value_unref>> value_;
};

using event = ::shed_event;

/*
 * Have f called, by a client or a lock that is opened with these options: with
 * each shed::event; with a shed_log_level and a line of text; or with the
 * shed::error of a hold that was lost. It must not throw. f is borrowed: it
 * must live until the client, its caches and its locks are gone.
 */
template <class F> void on_event(shed_client_options &options, F &f) noexcept
{
    options.event_user = &f;
    options.on_event = [](void *user, const struct shed_event *e) noexcept {
        (*static_cast<F *>(user))(*e);
    };
}
template <class F> void on_log(shed_client_options &options, F &f) noexcept
{
    options.log_user = &f;
    options.on_log = [](void *user, enum shed_log_level level,
                        const char *text) noexcept {
        (*static_cast<F *>(user))(level, text);
    };
}
template <class F> void on_lost(shed_lock_options &options, F &f) noexcept
{
    options.user = &f;
    options.on_lost = [](void *user, struct shed_lock *,
                         const struct shed_error *reason) noexcept {
        (*static_cast<F *>(user))(*reason);
    };
}

class client : public detail::handle<struct shed_client, shed_client_close>
{
  public:
    using handle::handle;
    static result<client> open(const detail::text &uri,
                               const shed_client_options *options = nullptr)
    {
        return detail::open<client, struct shed_client>(shed_client_open,
                                                        uri.c_str(), options);
    }
    result<shed_client_status> status() const
    {
        return detail::read<shed_client_status>(shed_client_status_read, get());
    }
};

/*
 * What a load says of one key, as struct shed_answer; it owns its bytes:
 *
 *     auto a = shed::answer::row(json);
 *     a.version = row.version;
 *     a.tags = {"shop-7"};
 */
struct answer {
    enum shed_answer_kind kind = SHED_ANSWER_FAILED;
    std::string text; /* the row, or the reason */
    std::optional<std::uint64_t> version;
    std::uint64_t ttl_ms = 0;
    std::vector<std::string> tags;

    static answer row(std::string row)
    {
        return {SHED_ANSWER_ROW, std::move(row), {}, 0, {}};
    }
    static answer null()
    {
        return {SHED_ANSWER_NULL, {}, {}, 0, {}};
    }
    static answer absent()
    {
        return {SHED_ANSWER_ABSENT, {}, {}, 0, {}};
    }
    static answer unmodified()
    {
        return {SHED_ANSWER_UNMODIFIED, {}, {}, 0, {}};
    }
    static answer too_big(std::string reason)
    {
        return {SHED_ANSWER_TOO_BIG, std::move(reason), {}, 0, {}};
    }
    static answer failed(std::string reason)
    {
        return {SHED_ANSWER_FAILED, std::move(reason), {}, 0, {}};
    }
};

namespace detail
{

/* tags is for the answer's, and must live as long as out. */
inline void fill(const answer &from, bytes_list &tags, shed_answer &out)
{
    tags = from.tags;
    out.kind = from.kind;
    out.row = to_bytes(from.text);
    out.reason = from.text.c_str();
    out.version = from.version ? &*from.version : nullptr;
    out.ttl_ms = from.ttl_ms;
    out.tags = tags.data();
    out.tags_count = tags.size();
}

} // namespace detail

/* A batch of keys to load. Destroying it ends the load: keys without an answer
 * have failed. Move it to another thread to answer later. */
class batch : public detail::handle<struct shed_load, shed_load_done>
{
  public:
    using handle::handle;
    std::size_t count() const noexcept
    {
        return get()->count;
    }
    std::string_view key(std::size_t i) const noexcept
    {
        return to_view(get()->keys[i].key);
    }
    std::optional<std::uint64_t> old_version(std::size_t i) const noexcept
    {
        const std::uint64_t *old = get()->keys[i].old_version;
        return old != nullptr ? std::optional(*old) : std::nullopt;
    }
    bool is_probe() const noexcept
    {
        return get()->is_probe != 0;
    }
    std::uint64_t remaining_ms() const noexcept
    {
        return shed_load_remaining_ms(get());
    }
    void answer(std::size_t i, const shed::answer &given)
    {
        shed_answer out = SHED_ANSWER_INIT;
        bytes_list tags;
        detail::fill(given, tags, out);
        shed_load_answer(get(), i, &out);
    }
};

class source : public detail::handle<struct shed_source, shed_source_close>
{
  public:
    using handle::handle;

    /* Calls load on loader threads; it must not throw. thread_start,
     * thread_stop and on_close of the options must be NULL. */
    static result<source> open(std::function<answer(std::string_view key)> load,
                               const shed_source_options *options = nullptr)
    {
        using function = std::function<answer(std::string_view)>;
        return open_with<function>(
            shed_source_open,
            [](void *user, void *, struct ::shed_bytes key,
               shed_answer *out) noexcept {
                /* valid until the next call on this thread, as promised */
                thread_local answer given;
                thread_local bytes_list tags;
                given = (*static_cast<function *>(user))(to_view(key));
                detail::fill(given, tags, *out);
            },
            std::move(load), options);
    }

    static result<source>
    open_batch(std::function<void(batch)> load,
               const shed_source_options *options = nullptr)
    {
        using function = std::function<void(batch)>;
        return open_with<function>(
            shed_source_open_batch,
            [](void *user, void *, struct shed_load *l) noexcept {
                (*static_cast<function *>(user))(batch(l));
            },
            std::move(load), options);
    }

  private:
    template <class Function, class Open, class Call>
    static result<source> open_with(Open open, Call call, Function load,
                                    const shed_source_options *options)
    {
        shed_source_options o = SHED_SOURCE_OPTIONS_INIT;
        auto owned = std::make_unique<Function>(std::move(load));
        if (options != nullptr)
            o = *options;
        o.on_close = [](void *user) { delete static_cast<Function *>(user); };
        auto opened = detail::open<source, struct shed_source>(
            open, call, static_cast<void *>(owned.get()), &o);
        if (opened)
            (void)owned.release(); /* on_close deletes it */
        return opened;
    }
};

/* See async.h. */
class queue : public detail::handle<struct shed_queue, shed_queue_close>
{
  public:
    using handle::handle;
    static result<queue> open()
    {
        return detail::open<queue, struct shed_queue>(shed_queue_open);
    }
    int fd() const noexcept
    {
        return shed_queue_fd(get());
    }
    std::size_t collect(std::size_t max) const noexcept
    {
        return shed_queue_collect(get(), max);
    }
};

namespace detail
{

/* Begin a call that ends with done, by the C function f with these arguments.
 * Returns: the call, for shed_cancel. */
template <class T, class F, class... Arguments>
result<struct shed_pending *> begin(std::function<void(result<T>)> done,
                                    const queue *queue, F f,
                                    Arguments... arguments)
{
    using function = std::function<void(result<T>)>;
    auto owned = std::make_unique<function>(std::move(done));
    struct shed_pending *pending = nullptr;
    shed::error err;
    struct shed_then then = {};
    then.user = owned.get();
    then.queue = queue != nullptr ? queue->get() : nullptr;
    then.done = [](void *user, enum shed_code code, struct shed_value *row,
                   const shed::error *reason) noexcept {
        std::unique_ptr<function> call(static_cast<function *>(user));
        if (code != SHED_OK)
            (*call)(*reason);
        else if constexpr (std::is_void_v<T>)
            (*call)(result<void>());
        else
            (*call)(T(row));
    };
    if (f(arguments..., &then, &pending, &err) != SHED_OK)
        return err;
    (void)owned.release(); /* the call deletes it */
    return pending;
}

} // namespace detail

/* What a put stores with the row, as in struct shed_put_options. */
struct put_options {
    bytes_list tags; /* keep their bytes valid until the put returns */
    std::optional<std::uint64_t> version;
    std::uint64_t ttl_ms = 0;
    std::uint64_t timeout_ms = SHED_TIMEOUT_DEFAULT;
};

class cache : public detail::handle<struct shed_cache, shed_cache_close>
{
  public:
    using handle::get;
    using handle::handle;
    static result<cache> open(const client &client, const detail::text &name,
                              const source &source,
                              const shed_cache_options *options = nullptr)
    {
        return detail::open<cache, struct shed_cache>(
            shed_cache_open, client.get(), name.c_str(), source.get(), options);
    }

    /* A row that does not exist is a success: a value whose is_absent() is
     * true and whose view() is empty. So ask is_row() before you use the view;
     * an empty row has an empty view, too. A failure says that nothing is known
     * of the row. */
    result<value>
    get(std::string_view key,
        const shed_get_options &options = SHED_GET_OPTIONS_INIT) const
    {
        return detail::open<value, struct shed_value>(shed_get, get(),
                                                      to_bytes(key), &options);
    }

    /* One result for each key, in their order. The errors of options are not
     * used. */
    std::vector<result<value>>
    get_many(const bytes_list &keys,
             shed_get_options options = SHED_GET_OPTIONS_INIT) const
    {
        std::vector<struct shed_item> items;
        std::vector<shed::error> errors(keys.size());
        std::vector<result<value>> results;
        shed::error err = {};
        items.reserve(keys.size());
        for (const auto &key : keys)
            items.push_back({key, nullptr, SHED_OK});
        options.errors = errors.data();
        (void)!shed_get_many(get(), items.data(), items.size(), &options, &err);
        results.reserve(items.size());
        for (std::size_t i = 0; i < items.size(); i++) {
            if (items[i].code == SHED_OK)
                results.emplace_back(value(items[i].value));
            else /* if nothing was asked, err says why */
                results.emplace_back(errors[i].code != SHED_OK ? errors[i]
                                                               : err);
        }
        return results;
    }

    result<void> put(std::string_view key, std::string_view row,
                     const put_options &options = put_options()) const
    {
        shed_put_options o = options_of(options);
        return detail::call(shed_put, get(), to_bytes(key), to_bytes(row), &o);
    }

    /* Calls without a thread that waits. done is a shed_done_fn (async.h), and
     * must not throw. The result is for shed_cancel. */
    result<struct shed_pending *>
    get_async(std::string_view key, std::function<void(result<value>)> done,
              const queue *queue = nullptr,
              const shed_get_options &options = SHED_GET_OPTIONS_INIT) const
    {
        return detail::begin<value>(
            std::move(done), queue, [&](auto *then, auto **out, auto *err) {
                return shed_get_async(get(), to_bytes(key), &options, then,
                                      nullptr, out, err);
            });
    }
    result<struct shed_pending *>
    put_async(std::string_view key, std::string_view row,
              std::function<void(result<void>)> done,
              const queue *queue = nullptr,
              const put_options &options = put_options()) const
    {
        shed_put_options o = options_of(options);
        return detail::begin<void>(std::move(done), queue, shed_put_async,
                                   get(), to_bytes(key), to_bytes(row), &o);
    }
    result<struct shed_pending *>
    invalidate_async(std::string_view key,
                     std::function<void(result<void>)> done,
                     const queue *queue = nullptr,
                     std::uint64_t timeout_ms = SHED_TIMEOUT_DEFAULT) const
    {
        return detail::begin<void>(std::move(done), queue,
                                   shed_invalidate_async, get(), to_bytes(key),
                                   timeout_ms);
    }

    result<void>
    invalidate(std::string_view key,
               std::uint64_t timeout_ms = SHED_TIMEOUT_DEFAULT) const
    {
        return detail::call(shed_invalidate, get(), to_bytes(key), timeout_ms);
    }

    result<void>
    invalidate_many(const bytes_list &keys,
                    std::uint64_t timeout_ms = SHED_TIMEOUT_DEFAULT) const
    {
        return detail::call(shed_invalidate_many, get(), keys.data(),
                            keys.size(), timeout_ms);
    }

    result<void>
    invalidate_all(std::uint64_t timeout_ms = SHED_TIMEOUT_DEFAULT) const
    {
        return detail::call(shed_invalidate_all, get(), timeout_ms);
    }

    result<void>
    invalidate_tags(const bytes_list &tags,
                    std::uint64_t timeout_ms = SHED_TIMEOUT_DEFAULT) const
    {
        return detail::call(shed_invalidate_tags, get(), tags.data(),
                            tags.size(), timeout_ms);
    }

    result<void> expire(std::string_view key, std::uint64_t in_ms = 0,
                        std::uint64_t timeout_ms = SHED_TIMEOUT_DEFAULT) const
    {
        return detail::call(shed_expire, get(), to_bytes(key), in_ms,
                            timeout_ms);
    }

    result<void> probe(std::uint64_t timeout_ms = SHED_TIMEOUT_DEFAULT) const
    {
        return detail::call(shed_cache_probe, get(), timeout_ms);
    }
    result<shed_stats> stats() const
    {
        return detail::read<shed_stats>(shed_stats_read, get());
    }

  private:
    static shed_put_options options_of(const put_options &options)
    {
        shed_put_options o = SHED_PUT_OPTIONS_INIT;
        o.timeout_ms = options.timeout_ms;
        o.ttl_ms = options.ttl_ms;
        o.version = options.version ? &*options.version : nullptr;
        o.tags = options.tags.data();
        o.tags_count = options.tags.size();
        return o;
    }
};

namespace detail
{

inline enum shed_code release(struct shed_lock *lock) noexcept
{
    return shed_lock_release(lock, nullptr);
}

/* Begin a lock's call that ends with done, by the C function f with these
 * arguments. Returns: what shed_lock_cancel knows it by. */
template <class F, class... Arguments>
result<const void *> begin_lock(std::function<void(result<void>)> done, F f,
                                Arguments... arguments)
{
    using function = std::function<void(result<void>)>;
    auto owned = std::make_unique<function>(std::move(done));
    auto end = [](void *user, struct shed_lock *, enum shed_code code,
                  const error *reason) noexcept {
        std::unique_ptr<function> call(static_cast<function *>(user));
        (*call)(code == SHED_OK ? result<void>() : result<void>(*reason));
    };
    error err;
    if (f(arguments..., end, owned.get(), &err) != SHED_OK)
        return err;
    return owned.release(); /* the call deletes it, perhaps has done so */
}

} // namespace detail

/* A lock that is held; destroying it releases the lock. It must not outlive its
 * lock, and belongs to the thread that acquired it. */
class hold : public detail::handle<struct shed_lock, detail::release>
{
  public:
    using handle::handle;

    /* Release now, to learn whether it was held until the end. */
    result<void> release()
    {
        return detail::call(shed_lock_release, give_up());
    }
};

class lock : public detail::handle<struct shed_lock, shed_lock_close>
{
  public:
    using handle::handle;
    static result<lock> open(const client &client, std::string_view name,
                             const shed_lock_options *options = nullptr)
    {
        return detail::open<lock, struct shed_lock>(
            shed_lock_open, client.get(), to_bytes(name), options);
    }
    static result<lock> open_quorum(const std::vector<const client *> &clients,
                                    std::string_view name,
                                    const shed_lock_options *options = nullptr)
    {
        auto handles = detail::handles<struct shed_client>(clients);
        return detail::open<lock, struct shed_lock>(
            shed_lock_open_quorum, handles.data(), handles.size(),
            to_bytes(name), options);
    }

    /* Keep the result: `if (lock.acquire(100))` releases the lock again before its
     * body; `if (auto hold = lock.acquire(100))` holds it there. */
    result<hold> acquire(std::uint64_t wait_ms) const
    {
        shed::error err;
        if (shed_lock_acquire(get(), wait_ms, &err) != SHED_OK)
            return err;
        return hold(get());
    }
    /* done is a shed_lock_done_fn, and must not throw. Without an error the
     * lock is the process's, until release_async or release. The result is for
     * cancel, until done is called: that may be at once. */
    result<const void *>
    acquire_async(std::uint64_t wait_ms,
                  std::function<void(result<void>)> done) const
    {
        return detail::begin_lock(std::move(done), shed_lock_acquire_async,
                                  get(), wait_ms);
    }
    /* Whether it was cancelled, see shed_lock_cancel. */
    bool cancel(const void *acquire) const noexcept
    {
        return shed_lock_cancel(get(), acquire) > 0;
    }

    result<void> release_async(std::function<void(result<void>)> done) const
    {
        auto begun =
            detail::begin_lock(std::move(done), shed_lock_release_async, get());
        return begun ? result<void>() : result<void>(begun.error());
    }
    /* Release a hold that acquire_async began; blocks. A shed::hold has its
     * own. */
    result<void> release() const
    {
        return detail::call(shed_lock_release, get());
    }

    /* Of the hold of this thread, or of the process. */
    result<void> extend(std::uint64_t lease_ms = 0) const
    {
        return detail::call(shed_lock_extend, get(), lease_ms);
    }
    result<shed_fence> fence() const
    {
        shed_fence out;
        shed::error err;
        if (shed_lock_fence(get(), &out, &err) != SHED_OK)
            return err;
        return out;
    }
    bool is_mine() const noexcept
    {
        return shed_lock_is_mine(get()) != 0;
    }
    std::uint64_t remaining_ms() const noexcept
    {
        return shed_lock_remaining_ms(get());
    }

    result<void> advance(std::uint64_t number) const
    {
        return detail::call(shed_lock_advance, get(), number);
    }

    result<void> probe(std::uint64_t timeout_ms = 0) const
    {
        return detail::call(shed_lock_probe, get(), timeout_ms);
    }
    result<shed_lock_stats> stats() const
    {
        return detail::read<shed_lock_stats>(shed_lock_stats_read, get());
    }
};

/* The text for Prometheus, as in stats_prometheus({&items, &orders}). */
inline std::string stats_prometheus(const std::vector<const cache *> &caches,
                                    const std::vector<const lock *> &locks = {})
{
    auto c = detail::handles<struct shed_cache>(caches);
    auto l = detail::handles<struct shed_lock>(locks);
    std::string text;
    std::size_t size = 0;
    do {                       /* again while it does not fit */
        text.resize(size + 1); /* for the terminator */
        size = shed_stats_prometheus(c.data(), c.size(), l.data(), l.size(),
                                     text.data(), text.size());
    } while (size >= text.size());
    text.resize(size);
    return text;
}

} // namespace shed

#endif
