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
 * function of the same name. Handles may be destroyed in any order.
 *
 * It has a form of every C function, except these, which are used as they are:
 * - shed_version, shed_code_name, shed_kind_name, shed_origin_name and
 *   shed_event_kind_name, and shed_log_stderr, for options.on_log;
 * - mysql.h, which belongs to a library of its own: mysql.hpp has a form of
 *   shed_mysql_source_open, hold::fence returns what shed_mysql_fence wants,
 *   and shed_mysql_connect has no handle of ours.
 * Of struct shed_source_options, thread_start and thread_stop are left out: a
 * thread_local object does what they do.
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
class bytes_list
{
  public:
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

    const struct ::shed_bytes *data() const noexcept
    {
        return bytes_.data();
    }
    std::size_t size() const noexcept
    {
        return bytes_.size();
    }
    auto begin() const noexcept
    {
        return bytes_.begin();
    }
    auto end() const noexcept
    {
        return bytes_.end();
    }

  private:
    template <class Texts> void add(const Texts &texts)
    {
        for (std::string_view text : texts)
            bytes_.push_back(to_bytes(text));
    }

    std::vector<struct ::shed_bytes> bytes_;
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

/*
 * A T, or why there is none. value() of one without a value throws bad_result,
 * or, with -fno-exceptions, prints the reason and aborts. To read * or -> of
 * such a result is a bug in the program, as with std::optional.
 */
template <class T> class [[nodiscard]] result
{
  public:
    result(T value) : value_(std::move(value))
    {
    }
    result(const shed::error &error) : error_(error)
    {
    }

    explicit operator bool() const noexcept
    {
        return value_.has_value();
    }
    T &operator*() noexcept
    {
        return *value_;
    }
    const T &operator*() const noexcept
    {
        return *value_;
    }
    T *operator->() noexcept
    {
        return &*value_;
    }
    const T *operator->() const noexcept
    {
        return &*value_;
    }
    T &value() &
    {
        check();
        return *value_;
    }
    const T &value() const &
    {
        check();
        return *value_;
    }
    T value() &&
    {
        check();
        return std::move(*value_);
    }
    template <class U> T value_or(U &&other) const &
    {
        return value_.value_or(std::forward<U>(other));
    }
    template <class U> T value_or(U &&other) &&
    {
        return std::move(value_).value_or(std::forward<U>(other));
    }
    const shed::error &error() const noexcept
    {
        return error_;
    }

    /* SHED_OK with a value. */
    enum shed_code code() const noexcept
    {
        return value_ ? SHED_OK : error_.code;
    }

  private:
    void check() const
    {
        if (!value_)
            detail::fail_loudly(error_);
    }

    std::optional<T> value_;
    shed::error error_ = {};
};

template <> class [[nodiscard]] result<void>
{
  public:
    result() = default;
    result(const shed::error &error) : error_(error)
    {
    }

    explicit operator bool() const noexcept
    {
        return error_.code == SHED_OK;
    }
    void value() const
    {
        if (error_.code != SHED_OK)
            detail::fail_loudly(error_);
    }
    const shed::error &error() const noexcept
    {
        return error_;
    }
    enum shed_code code() const noexcept
    {
        return error_.code;
    }

  private:
    shed::error error_ = {};
};

namespace detail
{

inline result<void> done(enum shed_code code, const error &err)
{
    return code == SHED_OK ? result<void>() : result<void>(err);
}

template <class T>
result<T> done(enum shed_code code, const T &value, const error &err)
{
    return code == SHED_OK ? result<T>(value) : result<T>(err);
}

/* The C function f with these arguments. */
template <class F, class... Arguments>
result<void> call(F f, Arguments... arguments)
{
    error err;
    return done(f(arguments..., &err), err);
}

/* What f reads of a handle. */
template <class T, class F, class Handle> result<T> read(F f, Handle *handle)
{
    T out = {};
    error err;
    return done(f(handle, &out, sizeof(out), &err), out, err);
}

/* For C, which ends a text at a zero byte: one that has any is refused, because
 * no URI, name or query is empty. */
inline std::string terminated(std::string_view text)
{
    return std::string(
        text.find('\0') == std::string_view::npos ? text : std::string_view());
}

template <auto close> struct closer {
    template <class T> void operator()(T *handle) const noexcept
    {
        close(handle);
    }
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
    value(const value &other) noexcept
        : value_(other.value_ != nullptr ? shed_value_ref(other.value_)
                                         : nullptr)
    {
    }
    value(value &&other) noexcept : value_(std::exchange(other.value_, nullptr))
    {
    }
    value &operator=(value other) noexcept
    {
        std::swap(value_, other.value_);
        return *this;
    }
    ~value()
    {
        shed_value_unref(value_);
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
    struct shed_value *value_;
};

using event = ::shed_event;

/*
 * Have f called, by a client or a lock that is opened with these options: with
 * each shed::event; with a shed_log_level and a line of text; or with the
 * shed::error of a hold that was lost. The C option of the same name says what
 * it may do. It must not throw. f is borrowed: it must live until the client,
 * its caches and its locks are gone.
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

class client
{
  public:
    static result<client> open(const char *uri,
                               const shed_client_options *options = nullptr)
    {
        struct shed_client *handle = nullptr;
        shed::error err;
        if (shed_client_open(uri, options, &handle, &err) != SHED_OK)
            return err;
        return client(handle);
    }
    static result<client> open(std::string_view uri,
                               const shed_client_options *options = nullptr)
    {
        return open(detail::terminated(uri).c_str(), options);
    }
    struct shed_client *get() const noexcept
    {
        return handle_.get();
    }
    result<shed_client_status> status() const
    {
        return detail::read<shed_client_status>(shed_client_status_read, get());
    }

  private:
    explicit client(struct shed_client *handle) noexcept : handle_(handle)
    {
    }

    std::unique_ptr<struct shed_client, detail::closer<shed_client_close>>
        handle_;
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
        return of(SHED_ANSWER_ROW, std::move(row));
    }
    static answer null()
    {
        return of(SHED_ANSWER_NULL);
    }
    static answer absent()
    {
        return of(SHED_ANSWER_ABSENT);
    }
    static answer unmodified()
    {
        return of(SHED_ANSWER_UNMODIFIED);
    }
    static answer too_big(std::string reason)
    {
        return of(SHED_ANSWER_TOO_BIG, std::move(reason));
    }
    static answer failed(std::string reason)
    {
        return of(SHED_ANSWER_FAILED, std::move(reason));
    }

  private:
    static answer of(enum shed_answer_kind kind, std::string text = {})
    {
        answer made;
        made.kind = kind;
        made.text = std::move(text);
        return made;
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
class batch
{
  public:
    explicit batch(struct shed_load *load) noexcept : load_(load)
    {
    }

    std::size_t count() const noexcept
    {
        return load_->count;
    }
    std::string_view key(std::size_t i) const noexcept
    {
        return to_view(load_->keys[i].key);
    }
    std::optional<std::uint64_t> old_version(std::size_t i) const noexcept
    {
        const std::uint64_t *old = load_->keys[i].old_version;
        return old != nullptr ? std::optional(*old) : std::nullopt;
    }
    bool is_probe() const noexcept
    {
        return load_->is_probe != 0;
    }
    std::uint64_t remaining_ms() const noexcept
    {
        return shed_load_remaining_ms(load_.get());
    }
    void answer(std::size_t i, const shed::answer &given)
    {
        shed_answer out = SHED_ANSWER_INIT;
        bytes_list tags;
        detail::fill(given, tags, out);
        shed_load_answer(load_.get(), i, &out);
    }

  private:
    std::unique_ptr<struct shed_load, detail::closer<shed_load_done>> load_;
};

class source
{
  public:
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

    /* As open. */
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

    /* Take over a source of the C interface's. */
    static source adopt(struct shed_source *handle) noexcept
    {
        return source(handle);
    }
    struct shed_source *get() const noexcept
    {
        return handle_.get();
    }
  private:
    template <class Function, class Open, class Call>
    static result<source> open_with(Open open, Call call, Function load,
                                    const shed_source_options *options)
    {
        shed_source_options o = SHED_SOURCE_OPTIONS_INIT;
        auto owned = std::make_unique<Function>(std::move(load));
        struct shed_source *handle = nullptr;
        shed::error err;
        if (options != nullptr)
            o = *options;
        o.on_close = [](void *user) { delete static_cast<Function *>(user); };
        if (open(call, owned.get(), &o, &handle, &err) != SHED_OK)
            return err;
        (void)owned.release(); /* on_close deletes it */
        return adopt(handle);
    }
    explicit source(struct shed_source *handle) noexcept : handle_(handle)
    {
    }

    std::unique_ptr<struct shed_source, detail::closer<shed_source_close>>
        handle_;
};

/* What a put stores with the row, as in struct shed_put_options. */
struct put_options {
    bytes_list tags; /* keep their bytes valid until the put returns */
    std::optional<std::uint64_t> version;
    std::uint64_t ttl_ms = 0;
    std::uint64_t timeout_ms = SHED_TIMEOUT_DEFAULT;
};

class cache
{
  public:
    static result<cache> open(const client &client, const char *name,
                              const source &source,
                              const shed_cache_options *options = nullptr)
    {
        struct shed_cache *handle = nullptr;
        shed::error err;
        if (shed_cache_open(client.get(), name, source.get(), options, &handle,
                            &err) != SHED_OK)
            return err;
        return cache(handle);
    }
    static result<cache> open(const client &client, std::string_view name,
                              const source &source,
                              const shed_cache_options *options = nullptr)
    {
        return open(client, detail::terminated(name).c_str(), source, options);
    }

    /* A row that does not exist is a success: a value whose is_absent() is
     * true and whose view() is empty. So ask is_row() before you use the view;
     * an empty row has an empty view, too. A failure says that nothing is known
     * of the row. */
    result<value>
    get(std::string_view key,
        const shed_get_options &options = SHED_GET_OPTIONS_INIT) const
    {
        struct shed_value *out = nullptr;
        shed::error err;
        if (shed_get(get(), to_bytes(key), &options, &out, &err) != SHED_OK)
            return err;
        return value(out);
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
        shed_put_options o = SHED_PUT_OPTIONS_INIT;
        o.timeout_ms = options.timeout_ms;
        o.ttl_ms = options.ttl_ms;
        o.version = options.version ? &*options.version : nullptr;
        o.tags = options.tags.data();
        o.tags_count = options.tags.size();
        return detail::call(shed_put, get(), to_bytes(key), to_bytes(row), &o);
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

    struct shed_cache *get() const noexcept
    {
        return handle_.get();
    }

  private:
    explicit cache(struct shed_cache *handle) noexcept : handle_(handle)
    {
    }

    std::unique_ptr<struct shed_cache, detail::closer<shed_cache_close>>
        handle_;
};

namespace detail
{

inline result<shed_fence> fence(struct shed_lock *lock)
{
    shed_fence out;
    shed::error err;
    return done(shed_lock_fence(lock, &out, &err), out, err);
}

} // namespace detail

/* A lock that is held; destroying it releases the lock. It must not outlive its
 * lock, and belongs to the thread that acquired it. */
class hold
{
  public:
    hold(hold &&other) noexcept : lock_(std::exchange(other.lock_, nullptr))
    {
    }
    hold &operator=(hold &&other) noexcept
    {
        std::swap(lock_, other.lock_);
        return *this;
    }
    ~hold()
    {
        if (lock_ != nullptr)
            (void)!shed_lock_release(lock_, nullptr);
    }

    /* Release now, to learn whether it was held until the end. */
    result<void> release()
    {
        return detail::call(shed_lock_release, std::exchange(lock_, nullptr));
    }
    result<void> extend(std::uint64_t lease_ms = 0) const
    {
        return detail::call(shed_lock_extend, lock_, lease_ms);
    }
    result<shed_fence> fence() const
    {
        return detail::fence(lock_);
    }
    bool is_mine() const noexcept
    {
        return shed_lock_is_mine(lock_) != 0;
    }
    std::uint64_t remaining_ms() const noexcept
    {
        return shed_lock_remaining_ms(lock_);
    }

  private:
    friend class lock;
    explicit hold(struct shed_lock *lock) noexcept : lock_(lock)
    {
    }

    struct shed_lock *lock_;
};

/* An asynchronous acquire, which this can cancel. It may be dropped at any
 * time; the acquire goes on. */
class pending
{
  public:
    using function = std::function<void(result<void>)>;

    /* As shed_lock_cancel: whether it was cancelled; else its function was
     * called, or is about to be. The lock must be open. */
    bool cancel() const noexcept
    {
        return shed_lock_cancel(lock_, state_.get()) > 0;
    }

  private:
    friend class lock;
    /* Keeps itself until it is called; then its address stays taken while a
     * pending knows it, so that no other acquire is cancelled. */
    struct state {
        function done;
        std::shared_ptr<state> self;
    };

    static void call(void *user, struct shed_lock *, enum shed_code code,
                     const shed::error *reason) noexcept
    {
        auto self = std::move(static_cast<state *>(user)->self);
        auto done = std::move(self->done);
        done(code == SHED_OK ? result<void>() : result<void>(*reason));
    }
    static std::shared_ptr<state> make(function done)
    {
        auto made = std::make_shared<state>();
        made->done = std::move(done);
        made->self = made;
        return made;
    }
    pending(struct shed_lock *lock, std::shared_ptr<state> made) noexcept
        : lock_(lock), state_(std::move(made))
    {
    }

    struct shed_lock *lock_;
    std::shared_ptr<state> state_;
};

class lock
{
  public:
    static result<lock> open(const client &client, std::string_view name,
                             const shed_lock_options *options = nullptr)
    {
        struct shed_lock *handle = nullptr;
        shed::error err;
        if (shed_lock_open(client.get(), to_bytes(name), options, &handle,
                           &err) != SHED_OK)
            return err;
        return lock(handle);
    }

    static result<lock> open_quorum(const std::vector<const client *> &clients,
                                    std::string_view name,
                                    const shed_lock_options *options = nullptr)
    {
        std::vector<struct shed_client *> handles;
        struct shed_lock *handle = nullptr;
        shed::error err;
        for (const client *client : clients)
            handles.push_back(client->get());
        if (shed_lock_open_quorum(handles.data(), handles.size(),
                                  to_bytes(name), options, &handle,
                                  &err) != SHED_OK)
            return err;
        return lock(handle);
    }

    /* wait_ms 0: one try. */
    result<hold> acquire(std::uint64_t wait_ms) const
    {
        shed::error err;
        if (shed_lock_acquire(get(), wait_ms, &err) != SHED_OK)
            return err;
        return hold(get());
    }
    /* done is called exactly once, on a thread of the library, perhaps before
     * this returns; not if this fails. It must not block or throw. Without an
     * error the lock is the process's, until release_async or release. */
    result<pending> acquire_async(std::uint64_t wait_ms,
                                  pending::function done) const
    {
        auto state = pending::make(std::move(done));
        shed::error err;
        if (shed_lock_acquire_async(get(), wait_ms, pending::call, state.get(),
                                    &err) != SHED_OK) {
            state->self.reset();
            return err;
        }
        return pending(get(), std::move(state));
    }
    /* done as for acquire_async. */
    result<void> release_async(pending::function done) const
    {
        auto state = pending::make(std::move(done));
        shed::error err;
        if (shed_lock_release_async(get(), pending::call, state.get(), &err) !=
            SHED_OK) {
            state->self.reset();
            return err;
        }
        return {};
    }
    /* Release a hold that acquire_async began; blocks. This and the next four
     * are for such holds: a shed::hold has its own. */
    result<void> release() const
    {
        return detail::call(shed_lock_release, get());
    }
    result<void> extend(std::uint64_t lease_ms = 0) const
    {
        return detail::call(shed_lock_extend, get(), lease_ms);
    }
    result<shed_fence> fence() const
    {
        return detail::fence(get());
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
    /* timeout_ms 0: the client's command_timeout_ms. */
    result<void> probe(std::uint64_t timeout_ms = 0) const
    {
        return detail::call(shed_lock_probe, get(), timeout_ms);
    }
    result<shed_lock_stats> stats() const
    {
        return detail::read<shed_lock_stats>(shed_lock_stats_read, get());
    }
    struct shed_lock *get() const noexcept
    {
        return handle_.get();
    }

  private:
    explicit lock(struct shed_lock *handle) noexcept : handle_(handle)
    {
    }

    std::unique_ptr<struct shed_lock, detail::closer<shed_lock_close>> handle_;
};

namespace detail
{

template <class Handle, class T>
std::vector<Handle *> handles(const std::vector<const T *> &things)
{
    std::vector<Handle *> handles;
    for (const T *thing : things)
        handles.push_back(thing->get());
    return handles;
}

} // namespace detail

/* The text for Prometheus, as in stats_prometheus({&items, &orders}). */
inline std::string stats_prometheus(const std::vector<const cache *> &caches,
                                    const std::vector<const lock *> &locks = {})
{
    auto c = detail::handles<struct shed_cache>(caches);
    auto l = detail::handles<struct shed_lock>(locks);
    std::string text;
    std::size_t size = 0;
    do { /* again while it does not fit */
        text.resize(size + 1); /* for the terminator */
        size = shed_stats_prometheus(c.data(), c.size(), l.data(), l.size(),
                                     text.data(), text.size());
    } while (size >= text.size());
    text.resize(size);
    return text;
}

} // namespace shed

#endif
