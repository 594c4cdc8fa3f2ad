/* What ThreadSanitizer takes for a race, because it does not see what libraries
 * do that are built without it:
 * - A session of TLS is freed by the last connection that has it, which OpenSSL
 *   finds out by atomic operations.
 * - libuv opens a descriptor by epoll_create1, and closes it by a system call
 * of its own; then another thread gets the same number. */
const char *__tsan_default_suppressions(void);

const char *__tsan_default_suppressions(void)
{
    return "race:SSL_SESSION_free\n"
           "race:OPENSSL_sk_free\n"
           "race:epoll_create1\n";
}
