/*
 * scan --hot: the hottest keys of a cache, as far as Redis knows.
 *
 * Redis counts reads of a key only with an LFU policy (OBJECT FREQ, a
 * logarithmic counter that decays). With any other policy it knows the second
 * in which a key was last used (OBJECT IDLETIME). Then the most recently used
 * keys are looked at once a second, and it is counted in how many of these
 * seconds each was used; keys that are used in every second cannot be
 * distinguished. MONITOR would show more, but halve the server's speed.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "cli/ranking.h"
#include "cli/scan.h"
#include "cli/walk.h"

/* Keys that are looked at once a second, if --rate allows it. Many are used in
 * some second, few in each second; so there are many at first, and fewer once
 * enough are known to be hotter. */
#define CANDIDATES_MAX 20000
#define CANDIDATES_LEFT 1000
#define PAGE 500 /* commands under way at a time */
#define LOOKS_DEFAULT 10

struct hot {
    const struct cli_call *call;
    bool has_frequency;
    const char *question;
    /* by FREQ, or minus the idle seconds; later by the seconds of use */
    struct cli_ranking keys;
    uint64_t looks;
    struct cli_rate rate; /* of the keys that are looked at again */
};

static void walk_keys(struct hot *h)
{
    struct cli_walk walk;

    cli_walk_begin(&walk, h->call->redis, h->call->words[0], h->call->rate);
    walk.ask[0] = h->question;
    while (cli_walk_next(&walk))
        for (size_t i = 0; i < walk.count; i++) {
            long long number = shed_reply_integer(walk.found[i].answer[0]);
            if (number >= 0)
                cli_ranking_add(&h->keys, walk.found[i].name,
                                h->has_frequency ? number : -number);
        }
    cli_ranking_sort(&h->keys);
}

/* Find out which candidates were used in the last second. */
static void look(struct hot *h)
{
    struct cli_ranked *at = h->keys.at;

    for (size_t from = 0; from < h->keys.count; from += PAGE) {
        size_t left = h->keys.count - from;
        size_t to = left > PAGE ? from + PAGE : h->keys.count;
        cli_rate_keep(&h->rate, to - from);
        for (size_t i = from; i < to; i++)
            cli_redis_send_key(h->call->redis, h->question, at[i].name);
        for (size_t i = from; i < to; i++) {
            struct shed_reply *idle =
                cli_redis_hear_key(h->call->redis, "OBJECT");
            at[i].rank += shed_reply_integer(idle) == 0;
            shed_reply_free(idle);
        }
    }
    cli_ranking_sort(&h->keys);
}

static void count_seconds(struct hot *h)
{
    uint64_t looks = h->call->seconds > 0 ? h->call->seconds : LOOKS_DEFAULT;
    struct cli_rate seconds = {.per_s = 1};
    struct cli_ranked *at = h->keys.at;

    for (size_t i = 0; i < h->keys.count; i++)
        at[i].rank = 0;
    for (; h->looks < looks; h->looks++) {
        cli_rate_keep(&seconds, 1);
        look(h);
        while (h->keys.count > CANDIDATES_LEFT &&
               at[h->keys.count - 1].rank < at[0].rank)
            cli_ranking_cut(&h->keys, h->keys.count - 1);
    }
}

/* ----------------------------------------------------------------- showing */

/* How many of the keys are shown. */
static size_t shown(const struct hot *h)
{
    size_t count = 0;

    while (count < h->keys.count && count < h->call->top &&
           (h->has_frequency || h->keys.at[count].rank > 0))
        count++;
    return count;
}

static void show(const struct hot *h, json_t *out)
{
    size_t count = shown(h);
    json_t *list = cli_out_list(out, "hottest");

    for (size_t i = 0; i < count; i++)
        cli_scan_show_key(h->call, &h->keys.at[i], list,
                          h->has_frequency ? "frequency" : "seconds");
    cli_out_text(out, "method", h->has_frequency ? "frequency" : "idle time");
    cli_out_number(out, "looks", h->looks);
    if (h->keys.count == 0)
        cli_cache_hint(h->call);
    else if (h->has_frequency)
        cli_out_hint(out, "By Redis's counter of uses (OBJECT FREQ): "
                          "logarithmic, at most 255, decaying.");
    else
        cli_out_hint(out,
                     "Seconds, of %" PRIu64 ", in which each was used (OBJECT "
                     "IDLETIME). Keys that are used each second cannot be told "
                     "apart; an LFU maxmemory-policy would count uses.",
                     h->looks);
}

bool cli_scan_hot(const struct cli_call *call)
{
    struct hot h = {.call = call, .rate = {.per_s = call->rate}};
    struct shed_reply *info = cli_redis_check(
        call->redis, cli_redis_ask(call->redis, "INFO memory"), "INFO");
    bool is_found;

    h.has_frequency =
        strstr(cli_info(info, "maxmemory_policy").at, "lfu") != NULL;
    h.question = h.has_frequency ? "OBJECT FREQ KEY" : "OBJECT IDLETIME KEY";
    h.keys.max =
        call->rate < CANDIDATES_MAX ? (size_t)call->rate : CANDIDATES_MAX;
    shed_reply_free(info);
    walk_keys(&h);
    is_found = h.keys.count > 0;
    if (!h.has_frequency && is_found)
        count_seconds(&h);
    show(&h, call->out);
    cli_ranking_fini(&h.keys);
    return is_found;
}
