/* What ThreadSanitizer takes for a race, because it does not see what libraries
 * do that are built without it:
 * - A session of TLS, and what belongs to it, is freed by the last connection
 *   that has it, which OpenSSL finds out by atomic operations.
 * - libuv opens a loop's descriptors and closes them by a system call of its
 *   own; then another thread gets the same numbers. */
const char *__tsan_default_suppressions(void);

const char *__tsan_default_suppressions(void)
{
    return "race:SSL_SESSION_free\n"
           "race:libcrypto.so\n"
           "race_top:epoll_create1\n"
           "race_top:eventfd\n"
           "race_top:pipe2\n";
}
