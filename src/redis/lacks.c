/* See lacks.h. */
#include "redis/lacks.h"

#define LATE "Dead loaders and holders are replaced when their leases end."

const struct shed_lack_row shed_lacks[SHED_LACKS] = {
    [SHED_LACK_ROLE] = {"ROLE", "A primary that has become a replica is left "
                                "when it first refuses a write."},
    [SHED_LACK_INFO] = {"INFO",
                        "A QUORUM acquires nothing, dead holders of locks are "
                        "replaced when their leases end, and no write is "
                        "repeated after a failover."},
    [SHED_LACK_SCRIPT_LOAD] = {"SCRIPT LOAD",
                               "The first call of each script is sent twice."},
    [SHED_LACK_CLIENT_ID] = {"CLIENT ID", "Waiters poll. " LATE},
    [SHED_LACK_SUBSCRIBE] = {"SUBSCRIBE", "Waiters poll. " LATE},
    [SHED_LACK_UNSUBSCRIBE] = {"UNSUBSCRIBE",
                               "A lease that is left behind when a connection "
                               "is lost lasts to its end."},
    [SHED_LACK_TRACKING] = {"CLIENT TRACKING", "Waiters poll."},
    [SHED_LACK_NUMSUB] = {"PUBSUB NUMSUB", LATE},
};
