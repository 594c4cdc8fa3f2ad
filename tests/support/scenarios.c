/* The scenarios, and the translation of their steps into calls. */
#include "support/scenarios.h"

#include <check.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cache/entry.h"

#define WRITTEN_AT 40
#define UNTIL_AT 48
#define WORDS_MAX 8
#define LONG_GRACE_MS 60000
#define SLACK_MS 5000
#define KEPT_MS 60000 /* how long a value is kept after its freshness */
#define MODEL_START_MS 1700000000000

static const struct model_lease_times times = {.lease_ms = 20000,
                                               .record_ms = 80000};

const struct scenario scenarios[] = {
    {"the first to come leads, the next one waits",
     {{"acquire 1 1 A", "LEAD A new"},
      {"open 1", "OK"},
      {"acquire 2 1 B", "WAIT"},
      {"acquire 1 2 C", "WAIT"},
      {"publish A row 30000", "STORED"},
      {"acquire 2 1 B", "HIT V row"}}},
    {"no such row is an answer",
     {{"acquire 1 1 A", "LEAD A new"},
      {"publish A - 30000", "STORED"},
      {"acquire 2 1 B", "HIT N "}}},
    {"a retry after a lost reply finds its own record, with its version",
     {{"acquire 1 1 A", "LEAD A new"},
      {"age 15000", "OK"},
      {"acquire 1 1 B", "LEAD A mine"},
      {"publish A row 30000", "STORED"}}},
    {"an own lease is kept even when it has run out",
     {{"acquire 1 1 A", "LEAD A new"},
      {"age 21000", "OK"},
      {"acquire 1 1 B", "LEAD A mine"},
      {"open 1", "OK"},
      {"acquire 2 1 C", "WAIT"}}},
    {"a dead holder is replaced",
     {{"open 1", "OK"},
      {"acquire 1 1 A", "LEAD A new"},
      {"acquire 2 1 B", "WAIT"},
      {"close 1", "OK"},
      {"acquire 2 1 B", "LEAD A takeover"},
      {"publish A row 30000", "STORED"}}},
    {"a young record is left alone",
     {{"acquire 1 1 A", "LEAD A new"},
      {"acquire 2 1 B young", "WAIT"},
      {"age 19000", "OK"},
      {"acquire 2 1 B young", "WAIT"},
      {"acquire 2 1 B", "LEAD A takeover"}}},
    {"a holder without a channel keeps its lease to the end",
     {{"acquire 1 1 A nochannel", "LEAD A new"},
      {"acquire 2 1 B", "WAIT"},
      {"age 21000", "OK"},
      {"acquire 2 1 B", "LEAD A takeover"}}},
    {"a live holder's lease ends too",
     {{"open 1", "OK"},
      {"acquire 1 1 A", "LEAD A new"},
      {"age 21000", "OK"},
      {"acquire 2 1 B", "LEAD A takeover"}}},
    {"a takeover has the life of a new record",
     {{"acquire 1 1 A", "LEAD A new"},
      {"pttl 30000", "OK"},
      {"acquire 2 1 B", "LEAD A takeover"},
      {"acquire 1 1 C nochannel", "LEAD A takeover"}}},
    {"a record without a ttl is taken over",
     {{"open 1", "OK"},
      {"acquire 1 1 A", "LEAD A new"},
      {"persist", "OK"},
      {"acquire 2 1 B", "LEAD A takeover"}}},
    {"a record that lives longer than allowed is taken over",
     {{"open 1", "OK"},
      {"acquire 1 1 A", "LEAD A new"},
      {"pttl 4300000", "OK"},
      {"acquire 2 1 B", "LEAD A takeover"}}},
    {"a dead holder's record from the future does not count as young",
     {{"acquire 1 1 A", "LEAD A new"},
      {"age -30000", "OK"},
      {"acquire 2 1 B young", "LEAD A takeover"}}},
    {"a record from the future lasts for one lease from now",
     {{"open 1", "OK"},
      {"acquire 1 1 A", "LEAD A new"},
      {"age -30000", "OK"},
      {"acquire 2 1 B", "WAIT"},
      {"age 19000", "OK"},
      {"acquire 2 1 B", "WAIT"},
      {"age 2000", "OK"},
      {"acquire 2 1 B", "LEAD A takeover"}}},
    {"so does that of a holder without a channel, by its own length",
     {{"acquire 1 1 A nochannel", "LEAD A new"},
      {"age -700000", "OK"},
      {"acquire 2 1 B", "WAIT"},
      {"age 21000", "OK"},
      {"acquire 2 1 B", "LEAD A takeover"}}},
    {"so does a renewed lease from the future",
     {{"open 1", "OK"},
      {"acquire 1 1 A", "LEAD A new"},
      {"age 300000", "OK"},
      {"renew 1 1 A", "1"},
      {"age -30000", "OK"},
      {"acquire 2 1 B", "WAIT"},
      {"age 21000", "OK"},
      {"acquire 2 1 B", "LEAD A takeover"}}},
    {"del ends a lease and its version",
     {{"acquire 1 1 A", "LEAD A new"},
      {"del", "OK"},
      {"publish A old 30000", "INVALIDATED"},
      {"acquire 2 1 B", "LEAD B new"},
      {"publish A old 30000", "INVALIDATED"},
      {"publish B row 30000", "STORED"},
      {"acquire 1 1 C", "HIT V row"}}},
    {"invalidate ends a lease and its version",
     {{"acquire 1 1 A", "LEAD A new"},
      {"invalidate", "1"},
      {"publish A old 30000", "INVALIDATED"},
      {"renew 1 1 A", "0"},
      {"fail 1 1 A why 500", "0"},
      {"invalidate", "0"}}},
    {"the first finisher wins, the holder or not",
     {{"acquire 1 1 A", "LEAD A new"},
      {"acquire 2 1 B", "LEAD A takeover"},
      {"publish A first 30000", "STORED"},
      {"publish A second 30000", "SUPERSEDED V first"}}},
    {"after a del a holder that was replaced stores nothing either",
     {{"acquire 1 1 A", "LEAD A new"},
      {"acquire 2 1 B", "LEAD A takeover"},
      {"del", "OK"},
      {"publish A old 30000", "INVALIDATED"},
      {"fail 2 1 A why 500", "0"}}},
    {"a publish that is sent twice is superseded by itself",
     {{"acquire 1 1 A", "LEAD A new"},
      {"publish A row 30000", "STORED"},
      {"publish A row 30000", "SUPERSEDED V row"}}},
    {"a marker prevents a late publish",
     {{"acquire 1 1 A", "LEAD A new"},
      {"acquire 2 1 B", "LEAD A takeover"},
      {"fail 2 1 A why 5000", "1"},
      {"publish A row 30000", "INVALIDATED"},
      {"acquire 3 1 C", "FAILED F why"}}},
    {"a marker from the future is replaced",
     {{"acquire 1 1 A", "LEAD A new"},
      {"fail 1 1 A why 5000", "1"},
      {"age -30000", "OK"},
      {"acquire 2 1 B", "LEAD B new"}}},
    {"a marker answers those who waited longer than others",
     {{"acquire 1 1 A", "LEAD A new"},
      {"open 1", "OK"},
      {"acquire 2 1 B", "WAIT"},
      {"fail 1 1 A why 5000 kept", "1"},
      {"acquire 3 1 C", "FAILED F why"},
      {"age 6000", "OK"},
      {"acquire 2 1 B waited", "FAILED F why"},
      {"acquire 3 1 C", "LEAD C new"},
      {"acquire 2 1 B waited", "LEAD C takeover"}}},
    {"a marker that answers nobody else answers those who waited",
     {{"acquire 1 1 A", "LEAD A new"},
      {"fail 1 1 A why 0 kept", "1"},
      {"acquire 2 1 B waited", "FAILED F why"},
      {"acquire 3 1 C", "LEAD C new"}}},
    {"those who waited are not answered by a marker from the future",
     {{"acquire 1 1 A", "LEAD A new"},
      {"fail 1 1 A why 5000", "1"},
      {"age -30000", "OK"},
      {"acquire 2 1 B waited", "LEAD B new"}}},
    {"the marker of a refresh answers those who waited longer, too",
     {{"put old 30000", "1"},
      {"acquire 1 1 A due=o", "LEAD A new of o"},
      {"fail 1 1 A why 0 refresh kept", "1"},
      {"acquire 2 1 B due=o waited", "FAILED F why of o"},
      {"acquire 3 1 C due=o", "LEAD C new of o"}}},
    {"only the present holder sets a marker",
     {{"acquire 1 1 A", "LEAD A new"},
      {"acquire 2 1 B", "LEAD A takeover"},
      {"fail 1 1 A why 5000", "0"},
      {"fail 2 2 A why 5000", "0"},
      {"fail 2 1 B why 5000", "0"},
      {"fail 2 1 A why 5000", "1"},
      {"fail 2 1 A why 5000", "0"}}},
    {"a release leaves no record",
     {{"acquire 1 1 A", "LEAD A new"},
      {"fail 1 1 A why 0", "1"},
      {"publish A row 30000", "INVALIDATED"},
      {"acquire 2 1 B", "LEAD B new"}}},
    {"fail and renew leave values alone",
     {{"acquire 1 1 A", "LEAD A new"},
      {"publish A row 30000", "STORED"},
      {"fail 1 1 A why 500", "0"},
      {"fail 1 1 A why 0", "0"},
      {"renew 1 1 A", "0"},
      {"acquire 2 1 B", "HIT V row"}}},
    {"a renewal extends the lease but not the life of the record",
     {{"acquire 1 1 A nochannel", "LEAD A new"},
      {"pttl 50000", "OK"},
      {"age 19000", "OK"},
      {"renew 1 1 A", "1"},
      {"acquire 2 1 B", "WAIT"}}},
    {"only the present holder renews",
     {{"acquire 1 1 A", "LEAD A new"},
      {"acquire 2 1 B", "LEAD A takeover"},
      {"renew 1 1 A", "0"},
      {"renew 2 2 A", "0"},
      {"renew 2 1 B", "0"},
      {"renew 2 1 A", "1"}}},
    {"a ttl of 0 keeps nothing and ends the lease",
     {{"acquire 1 1 A", "LEAD A new"},
      {"publish A row 0", "STORED"},
      {"publish A row 0", "INVALIDATED"},
      {"acquire 2 1 B", "LEAD B new"}}},
    {"a put ends a lease",
     {{"acquire 1 1 A", "LEAD A new"},
      {"put new 30000", "1"},
      {"renew 1 1 A", "0"},
      {"publish A old 30000", "SUPERSEDED V new"},
      {"acquire 2 1 B", "HIT V new"}}},
    {"a put replaces a value of any type",
     {{"list", "OK"},
      {"put one 30000", "1"},
      {"put two 40000", "1"},
      {"acquire 2 1 B", "HIT V two"}}},
    {"a foreign text is replaced",
     {{"set hello", "OK"},
      {"publish A row 30000", "INVALIDATED"},
      {"fail 1 1 A why 500", "0"},
      {"renew 1 1 A", "0"},
      {"acquire 1 1 A", "LEAD A foreign"},
      {"publish A row 30000", "STORED"}}},
    {"another type is replaced",
     {{"list", "OK"},
      {"publish A row 30000", "INVALIDATED"},
      {"fail 1 1 A why 500", "0"},
      {"renew 1 1 A", "0"},
      {"acquire 1 1 A", "LEAD A foreign"},
      {"invalidate", "1"}}},
    {"corrupt bytes are returned until a caller reports them",
     {{"put row 30000", "1"},
      {"flip", "OK"},
      {"acquire 1 1 A", "HIT V ros"},
      {"acquire 1 1 A seen", "LEAD A corrupt"},
      {"acquire 2 1 B", "LEAD A takeover"}}},
    {"corrupt bytes that are gone are not replaced",
     {{"put row 30000", "1"},
      {"acquire 1 1 A other", "HIT V row"},
      {"del", "OK"},
      {"acquire 1 1 A other", "LEAD A new"}}},
    {"without memory a lease is refused, and a value is not stored",
     {{"acquire 1 1 A", "LEAD A new"},
      {"full", "OK"},
      {"publish A row 30000", "OOM"},
      {"acquire 2 1 B", "OOM"},
      {"room", "OK"},
      {"publish A row 30000", "STORED"}}},
    {"without memory a lease is renewed, and its record lives as long",
     {{"open 1", "OK"},
      {"acquire 1 1 A", "LEAD A new"},
      {"age 5000", "OK"},
      {"full", "OK"},
      {"renew 1 1 A", "1"},
      {"acquire 2 1 B", "WAIT"},
      {"room", "OK"},
      {"publish A row 30000", "STORED"}}},
    {"without memory a lease of a clock that was set back is waited for",
     {{"open 1", "OK"},
      {"acquire 1 1 A", "LEAD A new"},
      {"age -30000", "OK"},
      {"full", "OK"},
      {"acquire 2 1 B", "WAIT"},
      {"room", "OK"}}},
    {"without memory what is there is still given out",
     {{"put row 30000", "1"},
      {"full", "OK"},
      {"acquire 1 1 A", "HIT V row"},
      {"acquire 1 1 A seen", "OOM"},
      {"room", "OK"},
      {"del", "OK"},
      {"acquire 1 1 A", "LEAD A new"},
      {"fail 1 1 A why 5000", "1"},
      {"full", "OK"},
      {"acquire 2 1 B", "FAILED F why"},
      {"room", "OK"}}},
    {"without memory another's lease is waited for, and an own one kept",
     {{"open 1", "OK"},
      {"acquire 1 1 A", "LEAD A new"},
      {"full", "OK"},
      {"acquire 2 1 B tracked", "WAIT"},
      {"acquire 1 1 C", "LEAD A mine"},
      {"pushes 2", "0"},
      {"fail 1 1 A why 0", "1"},
      {"pushes 2", "1"},
      {"acquire 2 1 B tracked", "OOM"},
      {"room", "OK"}}},
    {"without memory a foreign value is not replaced",
     {{"set hello", "OK"},
      {"full", "OK"},
      {"acquire 1 1 A", "OOM"},
      {"room", "OK"}}},
    {"without memory a lease is still released",
     {{"acquire 1 1 A", "LEAD A new"},
      {"full", "OK"},
      {"fail 1 1 A why 500", "OOM"},
      {"fail 1 1 A why 0", "1"},
      {"acquire 1 2 B", "OOM"},
      {"room", "OK"},
      {"acquire 1 2 B", "LEAD B new"}}},
    {"without memory an old value is superseded and a lost version is lost",
     {{"put row 30000", "1"},
      {"full", "OK"},
      {"publish A row 30000", "SUPERSEDED V row"},
      {"invalidate", "1"},
      {"publish A row 30000", "INVALIDATED"},
      {"room", "OK"}}},
    {"a put without memory removes what is older",
     {{"put old 30000", "1"},
      {"full", "OK"},
      {"put new 30000", "OOM"},
      {"room", "OK"},
      {"acquire 1 1 A", "LEAD A new"}}},
    {"a negative entry can be the first as well",
     {{"acquire 1 1 A", "LEAD A new"},
      {"acquire 2 1 B", "LEAD A takeover"},
      {"publish A - 30000", "STORED"},
      {"publish A row 30000", "SUPERSEDED N "}}},
    {"bytes shorter than a header are foreign",
     {{"put row 30000", "1"},
      {"cut 40", "OK"},
      {"acquire 1 1 A", "LEAD A foreign"}}},
    {"a text that reads like an entry is foreign",
     {{"set aaaaaVaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
       "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
       "OK"},
      {"publish A row 30000", "INVALIDATED"},
      {"acquire 1 1 A", "LEAD A foreign"}}},
    {"an invalidation ends a refresh",
     {{"put row 30000", "1"},
      {"refresh", "OK"},
      {"invalidate", "2"},
      {"invalidate", "0"}}},
    {"a put ends a refresh",
     {{"refresh", "OK"}, {"put row 30000", "1"}, {"invalidate", "1"}}},
    {"a fresh value is not refreshed unless it was found due",
     {{"put old 30000", "1"},
      {"acquire 1 1 A", "HIT V old"},
      {"acquire 1 1 A due=x", "HIT V old"},
      {"acquire 1 1 A due=o", "LEAD A new of o"},
      {"open 1", "OK"},
      {"acquire 2 1 B", "HIT V old"},
      {"acquire 2 1 B due=o", "WAIT of o"}}},
    {"one of many refreshes a value that is no longer fresh",
     {{"put old 30000", "1"},
      {"age 31000", "OK"},
      {"open 1", "OK"},
      {"acquire 1 1 A", "LEAD A new of o"},
      {"acquire 2 1 B", "WAIT of o"},
      {"publish A new 30000 of=o", "STORED"},
      {"acquire 2 1 B due=o", "HIT V new"},
      {"invalidate", "1"}}},
    {"a retry of a refresher finds its own lease",
     {{"put old 30000", "1"},
      {"acquire 1 1 A due=o", "LEAD A new of o"},
      {"acquire 1 1 B due=o", "LEAD A mine of o"},
      {"acquire 1 2 C due=o nochannel", "LEAD A takeover of o"}}},
    {"a refresher that died is replaced",
     {{"put old 30000", "1"},
      {"open 1", "OK"},
      {"acquire 1 1 A due=o", "LEAD A new of o"},
      {"acquire 2 1 B due=o", "WAIT of o"},
      {"close 1", "OK"},
      {"acquire 2 1 B due=o young", "WAIT of o"},
      {"acquire 2 1 B due=o", "LEAD A takeover of o"},
      {"renew 1 1 A refresh", "0"},
      {"renew 2 1 A refresh", "1"},
      {"publish A new 30000 of=o", "STORED"}}},
    {"an invalidation ends a refresh under way",
     {{"put old 30000", "1"},
      {"acquire 1 1 A due=o", "LEAD A new of o"},
      {"invalidate", "2"},
      {"publish A new 30000 of=o", "INVALIDATED"},
      {"acquire 2 1 B", "LEAD B new"},
      {"publish A new 30000 of=o", "INVALIDATED"}}},
    {"a plain del ends a refresh under way",
     {{"put old 30000", "1"},
      {"acquire 1 1 A due=o", "LEAD A new of o"},
      {"del", "OK"},
      {"publish A new 30000 of=o", "INVALIDATED"},
      {"invalidate", "0"}}},
    {"after a del and a load a refresh from before stores nothing",
     {{"put old 30000", "1"},
      {"acquire 1 1 A due=o", "LEAD A new of o"},
      {"del", "OK"},
      {"acquire 2 1 B", "LEAD B new"},
      {"publish B row 30000", "STORED"},
      {"publish A new 30000 of=o", "SUPERSEDED V row"},
      {"acquire 2 1 C due=r", "LEAD C new of r"}}},
    {"a refresh whose lease was taken away stores nothing",
     {{"put old 30000", "1"},
      {"acquire 1 1 A due=o", "LEAD A new of o"},
      {"fail 1 1 A why 0 refresh", "1"},
      {"publish A new 30000 of=o", "INVALIDATED"},
      {"acquire 2 1 B", "HIT V old"}}},
    {"the first of two refreshers wins",
     {{"put old 30000", "1"},
      {"acquire 1 1 A due=o", "LEAD A new of o"},
      {"acquire 2 1 B due=o", "LEAD A takeover of o"},
      {"publish A new 30000 of=o", "STORED"},
      {"publish A late 30000 of=o", "INVALIDATED"},
      {"acquire 3 1 C", "HIT V new"}}},
    {"a refresh that failed leaves the value, and others alone for a moment",
     {{"put old 30000", "1"},
      {"acquire 1 1 A due=o", "LEAD A new of o"},
      {"fail 1 1 A why 5000", "0"},
      {"fail 1 1 A why 5000 refresh", "1"},
      {"acquire 2 1 B due=o", "FAILED F why of o"},
      {"acquire 2 1 B", "HIT V old"},
      {"publish A new 30000 of=o", "INVALIDATED"}}},
    {"a row that is gone ends its value",
     {{"put old 30000", "1"},
      {"acquire 1 1 A due=o", "LEAD A new of o"},
      {"publish A - 0 of=o", "STORED"},
      {"acquire 2 1 B", "LEAD B new"}}},
    {"a row that is gone replaces its value",
     {{"put old 30000", "1"},
      {"acquire 1 1 A due=o", "LEAD A new of o"},
      {"publish A - 30000 of=o", "STORED"},
      {"acquire 2 1 B", "HIT N "}}},
    {"a foreign text at the refresh lease is replaced",
     {{"put old 30000", "1"},
      {"refresh", "OK"},
      {"acquire 1 1 A due=o", "LEAD A foreign of o"},
      {"publish A new 30000 of=o", "STORED"}}},
    {"without memory nothing is refreshed, and the value stays",
     {{"put old 30000", "1"},
      {"full", "OK"},
      {"acquire 1 1 A due=o", "OOM"},
      {"acquire 1 1 A", "HIT V old"},
      {"room", "OK"},
      {"acquire 1 1 A due=o", "LEAD A new of o"},
      {"full", "OK"},
      {"acquire 1 1 A due=o", "LEAD A mine of o"},
      {"publish A new 30000 of=o", "OOM"},
      {"fail 1 1 A why 0 refresh", "1"},
      {"acquire 1 1 A", "HIT V old"},
      {"room", "OK"}}},
    {"a waiter of a refresh gets a push when the new value comes",
     {{"put old 30000", "1"},
      {"open 1", "OK"},
      {"acquire 1 1 A due=o", "LEAD A new of o"},
      {"acquire 2 1 B due=o tracked", "WAIT of o"},
      {"pushes 2", "0"},
      {"publish A new 30000 of=o", "STORED"},
      {"pushes 2", "1"}}},
    {"a waiter of a refresh gets a push when the refresh fails",
     {{"put old 30000", "1"},
      {"open 1", "OK"},
      {"acquire 1 1 A due=o", "LEAD A new of o"},
      {"acquire 2 1 B due=o tracked", "WAIT of o"},
      {"fail 1 1 A why 5000 refresh", "1"},
      {"pushes 2", "1"}}},
    {"a value that was renewed is not due any more",
     {{"put old 30000", "1"},
      {"acquire 1 1 A due=o earlier", "HIT V old"},
      {"acquire 1 1 A due=o", "LEAD A new of o"}}},
    {"a refresher hears the version of the row",
     {{"put old 30000 @7", "1"},
      {"acquire 1 1 A due=o", "LEAD A new of o @7"},
      {"acquire 1 1 B due=o", "LEAD A mine of o @7"},
      {"full", "OK"},
      {"acquire 1 1 B due=o", "LEAD A mine of o @7"},
      {"room", "OK"},
      {"publish A new 30000 of=o @18446744073709551615", "STORED"},
      {"acquire 1 1 A due=n", "LEAD A new of n @18446744073709551615"}}},
    {"a row that is as it was lets its value stay, and be fresh again",
     {{"put old 30000 @7", "1"},
      {"age 31000", "OK"},
      {"acquire 1 1 A", "LEAD A new of o @7"},
      {"publish A - 30000 of=o keep", "STORED"},
      {"acquire 2 1 B", "HIT V old"},
      {"invalidate", "1"}}},
    {"callers who wait are given the value that stays",
     {{"put old 30000 @7", "1"},
      {"age 31000", "OK"},
      {"acquire 1 1 A", "LEAD A new of o @7"},
      {"publish A - 30000 of=o keep-and-get", "KEPT V old"},
      {"acquire 2 1 B", "HIT V old"},
      {"invalidate", "1"}}},
    {"a value does not stay after an invalidation",
     {{"put old 30000 @7", "1"},
      {"acquire 1 1 A due=o", "LEAD A new of o @7"},
      {"del", "OK"},
      {"publish A - 30000 of=o keep-and-get", "INVALIDATED"},
      {"acquire 2 1 B", "LEAD B new"}}},
    {"a value does not stay in place of another one",
     {{"put old 30000 @7", "1"},
      {"acquire 1 1 A due=o", "LEAD A new of o @7"},
      {"del", "OK"},
      {"acquire 2 1 B", "LEAD B new"},
      {"publish B row 30000", "STORED"},
      {"publish A - 30000 of=o keep", "SUPERSEDED V row"}}},
    {"without memory a value stays all the same",
     {{"put old 30000 @7", "1"},
      {"acquire 1 1 A due=o", "LEAD A new of o @7"},
      {"full", "OK"},
      {"publish A - 30000 of=o keep", "STORED"},
      {"acquire 1 1 A", "HIT V old"},
      {"room", "OK"}}},
    {"of two versions the higher one stays, in either order",
     {{"put old 30000 @7", "1"},
      {"put new 30000 @8", "1"},
      {"put old 30000 @7", "2"},
      {"acquire 1 1 A", "HIT V new"},
      {"put again 30000 @8", "1"},
      {"put late 30000 @4294967295", "1"},
      {"put more 30000 @4294967296", "1"},
      {"put late 30000 @4294967295", "2"},
      {"put top 30000 @18446744073709551615", "1"},
      {"put high 30000 @9223372036854775807", "2"},
      {"acquire 1 1 A", "HIT V top"}}},
    {"a put of a lower version leaves the refresh of the higher one alone",
     {{"put new 30000 @8", "1"},
      {"acquire 1 1 A due=n", "LEAD A new of n @8"},
      {"put old 30000 @7", "2"},
      {"publish A newer 30000 of=n @9", "STORED"}}},
    {"a put with a version removes what has none",
     {{"put old 30000", "1"},
      {"refresh", "OK"},
      {"put new 30000 @8", "3"},
      {"invalidate", "0"},
      {"put new 30000 @8", "1"},
      {"put old 30000", "1"},
      {"acquire 1 1 A", "HIT V old"}}},
    {"a put with a version removes \"no such row\"",
     {{"acquire 1 1 A", "LEAD A new"},
      {"publish A - 30000", "STORED"},
      {"put new 30000 @8", "3"},
      {"acquire 1 1 A", "LEAD A new"}}},
    {"a put with a version ends a load under way",
     {{"acquire 1 1 A", "LEAD A new"},
      {"put new 30000 @8", "1"},
      {"publish A old 30000 @7", "SUPERSEDED V new"}}},
    {"an expired value stays, and one refreshes it",
     {{"put old 30000", "1"},
      {"expire", "1"},
      {"open 1", "OK"},
      {"acquire 1 1 A", "LEAD A new of o"},
      {"acquire 2 1 B", "WAIT of o"},
      {"publish A new 30000 of=o", "STORED"},
      {"acquire 2 1 B", "HIT V new"}}},
    {"an expiry ends the refresh under way",
     {{"put old 30000", "1"},
      {"acquire 1 1 A due=o", "LEAD A new of o"},
      {"expire", "1"},
      {"publish A old 30000 of=o", "INVALIDATED"},
      {"acquire 2 1 B", "LEAD B new of o"},
      {"publish A old 30000 of=o", "INVALIDATED"},
      {"publish B new 30000 of=o", "STORED"}}},
    {"an expiry ends a load under way",
     {{"acquire 1 1 A", "LEAD A new"},
      {"expire", "0"},
      {"publish A old 30000", "INVALIDATED"},
      {"acquire 2 1 B", "LEAD B new"}}},
    {"an expiry does not prolong a stale value",
     {{"put old 30000", "1"},
      {"age 60000", "OK"},
      {"expire", "1"},
      {"expire", "1"},
      {"acquire 1 1 A", "LEAD A new of o"}}},
    {"an expiry removes what may not be stale",
     {{"acquire 1 1 A", "LEAD A new"},
      {"publish A - 30000", "STORED"},
      {"expire", "0"},
      {"acquire 1 1 B", "LEAD B new"},
      {"fail 1 1 B why 5000", "1"},
      {"expire", "0"},
      {"list", "OK"},
      {"expire", "0"},
      {"acquire 1 1 C", "LEAD C new"}}},
    {"without memory a value expires",
     {{"put old 30000", "1"},
      {"full", "OK"},
      {"expire", "1"},
      {"acquire 1 1 A", "OOM"},
      {"room", "OK"},
      {"acquire 1 1 A", "LEAD A new of o"}}},
    {"a waiter gets a push when the value comes",
     {{"open 1", "OK"},
      {"acquire 1 1 A tracked", "LEAD A new"},
      {"acquire 2 1 B tracked", "WAIT"},
      {"pushes 2", "0"},
      {"publish A row 30000", "STORED"},
      {"pushes 2", "1"},
      {"pushes 1", "0"},
      {"pushes 2", "0"}}},
    {"a waiter gets a push at a del, a failure and a renewal",
     {{"open 1", "OK"},
      {"acquire 1 1 A", "LEAD A new"},
      {"acquire 2 1 B tracked", "WAIT"},
      {"renew 1 1 A", "1"},
      {"pushes 2", "1"},
      {"acquire 2 1 B tracked", "WAIT"},
      {"fail 1 1 A why 5000", "1"},
      {"pushes 2", "1"},
      {"acquire 2 1 B tracked", "FAILED F why"},
      {"del", "OK"},
      {"pushes 2", "1"}}},
    {"the leader of an absent key gets no push",
     {{"acquire 1 1 A tracked", "LEAD A new"},
      {"del", "OK"},
      {"pushes 1", "0"}}},
    {"a process that does not ask to be tracked gets no push",
     {{"open 1", "OK"},
      {"acquire 1 1 A", "LEAD A new"},
      {"acquire 2 1 B", "WAIT"},
      {"del", "OK"},
      {"pushes 2", "0"}}},
};

const size_t scenario_count = sizeof(scenarios) / sizeof(*scenarios);

/* ------------------------------------------------------------------- steps */

struct words {
    char text[STEP_TEXT_BYTES];
    char *at[WORDS_MAX];
    size_t count;
};

static void split(struct words *words, const char *step)
{
    char *save = NULL;

    words->count = 0;
    snprintf(words->text, sizeof(words->text), "%s", step);
    for (char *word = strtok_r(words->text, " ", &save);
         word != NULL && words->count < WORDS_MAX;
         word = strtok_r(NULL, " ", &save))
        words->at[words->count++] = word;
}

static bool has(const struct words *words, const char *word)
{
    for (size_t i = 1; i < words->count; i++)
        if (strcmp(words->at[i], word) == 0)
            return true;
    return false;
}

static const char *word_at(const struct words *words, size_t i)
{
    ck_assert_msg(i < words->count, "%s: a word is missing", words->at[0]);
    return words->at[i];
}

static uint64_t number_at(const struct words *words, size_t i)
{
    return (uint64_t)strtoll(word_at(words, i), NULL, 10);
}

static struct model_owner owner_at(const struct words *words, size_t i)
{
    struct model_owner owner = {.process = (unsigned)number_at(words, i),
                                .flight = number_at(words, i + 1)};

    memset(owner.version, *word_at(words, i + 2), sizeof(owner.version));
    return owner;
}

/* The nonce that a word names, NULL if there is none. */
static const unsigned char *
nonce_of(const struct words *words, const char *prefix, unsigned char nonce[16])
{
    for (size_t i = 1; i < words->count; i++)
        if (strncmp(words->at[i], prefix, strlen(prefix)) == 0)
            return memset(nonce, words->at[i][strlen(prefix)], 16);
    return NULL;
}

/* The value that the words from i on describe: a row, its ttl, and perhaps its
 * version. */
static struct model_value value_at(const struct words *words, size_t i)
{
    const char *row = word_at(words, i);
    struct model_value value = {.is_row = strcmp(row, "-") != 0,
                                .payload = row,
                                .fresh_ms = number_at(words, i + 1),
                                .ttl_ms = number_at(words, i + 1)};

    value.size = value.is_row ? strlen(row) : 0;
    memset(value.nonce, *row, sizeof(value.nonce));
    if (value.ttl_ms > 0)
        value.ttl_ms += KEPT_MS;
    for (size_t at = i + 2; at < words->count; at++) {
        if (*words->at[at] != '@')
            continue;
        value.has_version = true;
        value.version = strtoull(words->at[at] + 1, NULL, 10);
    }
    return value;
}

static void make_acquire(struct store *store, const struct words *words,
                         struct model_call *call)
{
    struct model_owner owner = owner_at(words, 1);
    struct model_lease_times t = times;
    struct store_state now;
    struct model_bytes seen = {.size = 0};
    unsigned char due[SHED_ENTRY_IDENTITY_BYTES], nonce[16];
    bool is_due = nonce_of(words, "due=", nonce) != NULL;

    store->get(store, &now);
    shed_entry_identity(now.bytes.at, due); /* of when it was written */
    memcpy(due, nonce, sizeof(nonce));
    if (has(words, "earlier"))
        due[sizeof(due) - 1]--;
    if (has(words, "seen"))
        model_bytes_set(&seen, now.bytes.at, SHED_ENTRY_HEADER_BYTES);
    if (has(words, "other"))
        model_bytes_set(&seen, "other bytes", 11);
    if (has(words, "young"))
        t.grace_ms = LONG_GRACE_MS;
    model_make_acquire(call, 0, &owner, !has(words, "nochannel"), &t, &seen,
                       is_due ? due : NULL, has(words, "waited"));
    call->client = owner.process;
    call->is_tracked = has(words, "tracked");
}

/* How long a marker is there: as long as it answers everybody, or longer. */
static uint64_t kept_ms(const struct words *words)
{
    return has(words, "kept") ? KEPT_MS : number_at(words, 5);
}

static void make_publish(const struct words *words, struct model_call *call)
{
    struct model_value value = value_at(words, 2);
    unsigned char version[16], nonce[16];

    memset(version, *word_at(words, 1), sizeof(version));
    model_make_publish(call, 0, version, &value, nonce_of(words, "of=", nonce),
                       has(words, "keep")           ? "keep"
                       : has(words, "keep-and-get") ? "keep and get"
                                                    : "");
}

/* Returns false if the step calls no script. */
static bool make_call(struct store *store, const struct words *words,
                      struct model_call *call)
{
    const char *verb = words->at[0];
    bool is_refresh = has(words, "refresh");
    struct model_owner owner;
    struct model_value value;

    if (strcmp(verb, "acquire") == 0) {
        make_acquire(store, words, call);
    } else if (strcmp(verb, "publish") == 0) {
        make_publish(words, call);
    } else if (strcmp(verb, "fail") == 0) {
        owner = owner_at(words, 1);
        model_make_fail(call, 0, is_refresh, &owner, word_at(words, 4),
                        number_at(words, 5), kept_ms(words));
    } else if (strcmp(verb, "renew") == 0) {
        owner = owner_at(words, 1);
        model_make_renew(call, 0, is_refresh, &owner, times.lease_ms);
    } else if (strcmp(verb, "put") == 0) {
        value = value_at(words, 1);
        model_make_put(call, 0, &value);
    } else if (strcmp(verb, "invalidate") == 0) {
        model_make_invalidate(call, 0);
    } else if (strcmp(verb, "expire") == 0) {
        model_make_expire(call, 0);
    } else {
        return false;
    }
    return true;
}

static void change_bytes(struct store *store, const struct words *words)
{
    struct store_state now;

    store->get(store, &now);
    ck_assert_int_eq(now.type, STORE_STRING);
    if (strcmp(words->at[0], "flip") == 0) {
        now.bytes.at[now.bytes.size - 1] ^= 4; /* w becomes s */
    } else if (strcmp(words->at[0], "cut") == 0) {
        now.bytes.size = (size_t)number_at(words, 1);
    } else {
        for (size_t at = WRITTEN_AT; at <= UNTIL_AT; at += 8)
            shed_entry_put_u64(now.bytes.at + at,
                               model_get_u64(now.bytes.at + at) -
                                   number_at(words, 1));
    }
    store->set(store, &now.bytes, true);
}

/* Do what another client does; the reply is OK. Returns false for an unknown
 * verb. */
static bool interfere(struct store *store, const struct words *words)
{
    const char *verb = words->at[0];
    struct model_bytes text;

    if (strcmp(verb, "set") == 0) {
        model_bytes_set(&text, word_at(words, 1), strlen(word_at(words, 1)));
        store->set(store, &text, false);
    } else if (strcmp(verb, "flip") == 0 || strcmp(verb, "cut") == 0 ||
               strcmp(verb, "age") == 0) {
        change_bytes(store, words);
    } else if (strcmp(verb, "list") == 0) {
        store->set_list(store);
    } else if (strcmp(verb, "refresh") == 0) {
        store->set_refresh(store);
    } else if (strcmp(verb, "del") == 0) {
        store->del(store);
    } else if (strcmp(verb, "persist") == 0) {
        store->set_pttl(store, 0);
    } else if (strcmp(verb, "pttl") == 0) {
        store->set_pttl(store, number_at(words, 1));
    } else if (strcmp(verb, "full") == 0 || strcmp(verb, "room") == 0) {
        store->set_full(store, *verb == 'f');
    } else if (strcmp(verb, "open") == 0 || strcmp(verb, "close") == 0) {
        store->set_channel(store, (unsigned)number_at(words, 1), *verb == 'o');
    } else {
        return false;
    }
    return true;
}

/* ----------------------------------------------------------------- replies */

static void describe_parts(const struct model_reply *reply,
                           char out[STEP_TEXT_BYTES])
{
    const struct model_bytes *part = reply->part;
    int used = snprintf(out, STEP_TEXT_BYTES, "%.*s", (int)part[0].size,
                        (const char *)part[0].at);

    size_t usual = 2;

    if (model_bytes_are(&part[0], "LEAD")) {
        used += snprintf(out + used, STEP_TEXT_BYTES - (size_t)used, " %c %.*s",
                         part[1].at[0], (int)part[2].size,
                         (const char *)part[2].at);
        usual = 3;
    } else if (model_bytes_are(&part[0], "WAIT")) {
        usual = 3;
    } else if (reply->count >= 2) {
        used +=
            snprintf(out + used, STEP_TEXT_BYTES - (size_t)used, " %c %.*s",
                     part[1].at[5], (int)part[1].size - SHED_ENTRY_HEADER_BYTES,
                     (const char *)part[1].at + SHED_ENTRY_HEADER_BYTES);
    }
    if (reply->count > usual)
        used += snprintf(out + used, STEP_TEXT_BYTES - (size_t)used, " of %c",
                         part[usual].at[0]);
    if (model_bytes_are(&part[0], "LEAD") && reply->count > usual + 1)
        snprintf(out + used, STEP_TEXT_BYTES - (size_t)used, " @%" PRIu64,
                 model_get_u64(part[usual + 1].at));
}

static void describe(const struct model_reply *reply, char out[STEP_TEXT_BYTES])
{
    if (reply->type == MODEL_PARTS)
        describe_parts(reply, out);
    else if (reply->type == MODEL_INTEGER)
        snprintf(out, STEP_TEXT_BYTES, "%lld", reply->integer);
    else if (reply->type == MODEL_OOM)
        snprintf(out, STEP_TEXT_BYTES, "OOM");
    else
        snprintf(out, STEP_TEXT_BYTES, "ERROR %.*s", (int)reply->part[0].size,
                 (const char *)reply->part[0].at);
}

/* The lease is as old as its record, or as the record's life that is over. */
static void check_age(const struct store_state *now, uint64_t age_ms)
{
    uint64_t written = model_get_u64(now->bytes.at + WRITTEN_AT);
    uint64_t age = now->now_ms > written ? now->now_ms - written : 0;

    if (times.record_ms > now->pttl_ms && times.record_ms - now->pttl_ms > age)
        age = times.record_ms - now->pttl_ms;
    ck_assert_uint_le(age_ms, age);
    ck_assert_uint_le(age, age_ms + SLACK_MS);
}

/* A wait lasts as long as the lease. */
static void check_wait(struct store *store, const struct model_reply *reply)
{
    struct store_state now;
    uint64_t left;

    if (reply->type != MODEL_PARTS ||
        !model_bytes_are(&reply->part[0], "WAIT") || reply->count > 3)
        return;
    store->get(store, &now);
    left = model_get_u64(now.bytes.at + UNTIL_AT) - now.now_ms;
    ck_assert_int_gt(reply->integer, 0);
    ck_assert_uint_ge((uint64_t)reply->integer, left);
    ck_assert_uint_le((uint64_t)reply->integer, left + SLACK_MS);
    check_age(&now, reply->age_ms);
}

void scenario_step(struct store *store, const char *step,
                   char out[STEP_TEXT_BYTES])
{
    static struct model_call call;
    static struct model_reply reply;
    struct words words;

    split(&words, step);
    if (make_call(store, &words, &call)) {
        store->call(store, &call, &reply);
        describe(&reply, out);
        check_wait(store, &reply);
    } else if (strcmp(words.at[0], "pushes") == 0) {
        snprintf(out, STEP_TEXT_BYTES, "%d",
                 store->take_pushes(store, (unsigned)number_at(&words, 1)));
    } else {
        ck_assert_msg(interfere(store, &words), "no such step: %s", step);
        snprintf(out, STEP_TEXT_BYTES, "OK");
    }
}

/* ------------------------------------------------------------------ states */

static bool are_near(uint64_t a, uint64_t b)
{
    int64_t apart = (int64_t)(a - b);

    return apart >= -SLACK_MS && apart <= SLACK_MS;
}

static bool is_entry(const struct model_bytes *bytes)
{
    return bytes->size >= SHED_ENTRY_HEADER_BYTES &&
           memcmp(bytes->at, "\xf5shd", 4) == 0;
}

static const char *entries_difference(const struct store_state *a,
                                      const struct store_state *b)
{
    const unsigned char *x = a->bytes.at, *y = b->bytes.at;

    if (memcmp(x, y, WRITTEN_AT) != 0 ||
        memcmp(x + UNTIL_AT + 8, y + UNTIL_AT + 8,
               a->bytes.size - UNTIL_AT - 8) != 0)
        return "bytes";
    if (!are_near(model_get_u64(x + WRITTEN_AT) - a->now_ms,
                  model_get_u64(y + WRITTEN_AT) - b->now_ms))
        return "time of writing";
    if (!are_near(model_get_u64(x + UNTIL_AT) - a->now_ms,
                  model_get_u64(y + UNTIL_AT) - b->now_ms))
        return "end";
    return NULL;
}

const char *scenario_difference(const struct store_state *a,
                                const struct store_state *b)
{
    if (a->type != b->type)
        return "type";
    if (a->type == STORE_ABSENT)
        return NULL;
    if (a->has_ttl != b->has_ttl ||
        (a->has_ttl && !are_near(a->pttl_ms, b->pttl_ms)))
        return "ttl";
    if (a->type == STORE_OTHER)
        return NULL;
    if (a->bytes.size != b->bytes.size)
        return "size";
    if (is_entry(&a->bytes) && is_entry(&b->bytes))
        return entries_difference(a, b);
    return memcmp(a->bytes.at, b->bytes.at, a->bytes.size) == 0 ? NULL
                                                                : "bytes";
}

/* --------------------------------------------------------- model as a store */

static struct model *model_of(struct store *store)
{
    return &((struct model_store *)store)->model;
}

static void model_store_call(struct store *store, const struct model_call *call,
                             struct model_reply *reply)
{
    model_call(model_of(store), call, reply);
}

static void describe_slot(const struct model *model,
                          const struct model_slot *slot,
                          struct store_state *out)
{
    out->type = slot->type == MODEL_ABSENT   ? STORE_ABSENT
                : slot->type == MODEL_STRING ? STORE_STRING
                                             : STORE_OTHER;
    out->bytes = slot->bytes;
    out->has_ttl = slot->has_ttl;
    out->pttl_ms = slot->expires_ms - model->now_ms;
    out->now_ms = model->now_ms;
}

static void model_store_get(struct store *store, struct store_state *out)
{
    describe_slot(model_of(store), model_peek(model_of(store), 0), out);
}

static void model_store_get_refresh(struct store *store,
                                    struct store_state *out)
{
    describe_slot(model_of(store), model_peek_refresh(model_of(store), 0), out);
}

static void model_store_set(struct store *store,
                            const struct model_bytes *bytes, bool keep_ttl)
{
    struct model_slot *slot = &model_of(store)->slot[0];
    bool had_ttl = slot->has_ttl;

    model_set(model_of(store), 0, bytes->at, bytes->size);
    slot->has_ttl = keep_ttl && had_ttl;
}

static void model_store_set_list(struct store *store)
{
    struct model_slot *slot = &model_of(store)->slot[0];

    model_set(model_of(store), 0, "", 0);
    slot->type = MODEL_LIST;
}

static void model_store_set_refresh(struct store *store)
{
    struct model_slot *slot = &model_of(store)->refresh[0];

    *slot = (struct model_slot){.type = MODEL_STRING};
    model_bytes_set(&slot->bytes, "token", strlen("token"));
}

static void model_store_del(struct store *store)
{
    model_del(model_of(store), 0);
}

static void model_store_set_pttl(struct store *store, uint64_t pttl_ms)
{
    struct model_slot *slot = &model_of(store)->slot[0];

    slot->has_ttl = pttl_ms > 0;
    slot->expires_ms = model_of(store)->now_ms + pttl_ms;
}

static void model_store_set_full(struct store *store, bool is_full)
{
    model_of(store)->is_full = is_full;
}

static void model_store_set_channel(struct store *store, unsigned process,
                                    bool is_open)
{
    uint64_t bit = UINT64_C(1) << process;

    if (is_open)
        model_of(store)->channels |= bit;
    else
        model_of(store)->channels &= ~bit;
}

static bool model_store_take_pushes(struct store *store, unsigned client)
{
    uint64_t bit = UINT64_C(1) << client;
    bool was_pushed = (model_of(store)->pushed[0] & bit) != 0;

    model_of(store)->pushed[0] &= ~bit;
    return was_pushed;
}

void model_store_init(struct model_store *store)
{
    *store = (struct model_store){
        .store = {model_store_call, model_store_get, model_store_get_refresh,
                  model_store_set, model_store_set_list,
                  model_store_set_refresh, model_store_del,
                  model_store_set_pttl, model_store_set_full,
                  model_store_set_channel, model_store_take_pushes},
        .model = {.now_ms = MODEL_START_MS}};
}
