/* Who may ask: pages of our own, and what is no browser. A foreign page can
 * make a browser send a request here, but not with its own host's name, nor
 * with a foreign Origin unseen. */
#include "http.h"

#include <microhttpd.h>
#include <string.h>
#include <strings.h>

/* host[:port] of this machine, whatever a name server says: a page of another
 * host whose name was changed to mean 127.0.0.1 sends its own name. */
static bool is_our_host(const char *host)
{
    static const char *const names[] = {"127.0.0.1", "localhost"};

    for (size_t i = 0; host != NULL && i < 2; i++) {
        size_t size = strlen(names[i]);
        if (strncasecmp(host, names[i], size) == 0 &&
            (host[size] == '\0' || host[size] == ':'))
            return true;
    }
    return false;
}

/* A browser sends Origin with every POST, and with what another page asks. */
static bool is_our_origin(const char *origin, const char *host)
{
    static const char scheme[] = "http://";
    const size_t size = sizeof(scheme) - 1;

    return origin == NULL || (strncmp(origin, scheme, size) == 0 &&
                              strcmp(origin + size, host) == 0);
}

bool http_admit(const struct http_request *request, struct http_reply *reply)
{
    const char *host = http_header(request, MHD_HTTP_HEADER_HOST);

    if (!is_our_host(host))
        http_reply_error(reply, MHD_HTTP_FORBIDDEN,
                         "ask 127.0.0.1 or localhost, not '%.60s'",
                         host != NULL ? host : "");
    else if (!is_our_origin(http_header(request, MHD_HTTP_HEADER_ORIGIN), host))
        http_reply_error(reply, MHD_HTTP_FORBIDDEN,
                         "a page of another origin may not ask");
    else
        return true;
    return false;
}
