/*
 * A source that is not MySQL: a function of yours, called with a missing key,
 * on threads of the library. Here it knows two exchange rates.
 *
 *     cc own_source.c -o own_source $(pkg-config --cflags --libs snowshed)
 *     ./own_source [REDIS-URI]
 */
#include <snowshed/source.h>
#include <stdio.h>
#include <string.h>

static const char *const rates[][2] = {{"CHF", "0.94"}, {"USD", "1.08"}};

static void load_rate(void *user, void *thread, struct shed_bytes key,
                      struct shed_answer *answer)
{
    (void)user, (void)thread; /* nothing was passed to shed_source_open */
    answer->kind = SHED_ANSWER_ABSENT; /* it comes as SHED_ANSWER_FAILED */
    for (size_t r = 0; r < sizeof(rates) / sizeof(rates[0]); r++)
        if (key.size == 3 && memcmp(key.data, rates[r][0], 3) == 0) {
            answer->kind = SHED_ANSWER_ROW;
            answer->row = shed_str(rates[r][1]);
        }
}

static enum shed_code print_rate(struct shed_cache *cache, const char *currency,
                                 struct shed_error *err)
{
    struct shed_value *value = NULL;

    if (shed_get(cache, shed_str(currency), NULL, &value, err))
        return err->code;
    if (value->kind == SHED_KIND_ABSENT)
        printf("%s: unknown\n", currency);
    else
        printf("%s: %.*s\n", currency, (int)value->size,
               (const char *)value->data);
    shed_value_unref(value);
    return SHED_OK;
}

int main(int argc, char **argv)
{
    struct shed_client_options options = SHED_CLIENT_OPTIONS_INIT;
    struct shed_client *client = NULL;
    struct shed_source *source = NULL;
    struct shed_cache *cache = NULL;
    struct shed_error err = {SHED_OK, ""};

    options.on_log = shed_log_stderr; /* says if there is no Redis */
    if (shed_client_open(argc > 1 ? argv[1] : "redis://localhost", &options,
                         &client, &err) ||
        shed_source_open(load_rate, NULL, NULL, &source, &err) ||
        shed_cache_open(client, "rate", source, NULL, &cache, &err) ||
        print_rate(cache, "USD", &err) || print_rate(cache, "XXX", &err))
        fprintf(stderr, "%s: %s\n", shed_code_name(err.code), err.reason);
    shed_cache_close(cache);
    shed_source_close(source);
    shed_client_close(client);
    return err.code == SHED_OK ? 0 : 1;
}
