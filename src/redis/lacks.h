/* The commands without which the library goes on, and what that costs: a
 * managed server, a proxy or an ACL may refuse them. */
#ifndef SHED_REDIS_LACKS_H
#define SHED_REDIS_LACKS_H

enum shed_lack {
    SHED_LACK_ROLE,
    SHED_LACK_INFO,
    SHED_LACK_SCRIPT_LOAD,
    SHED_LACK_CLIENT_ID,
    SHED_LACK_SUBSCRIBE,
    SHED_LACK_UNSUBSCRIBE,
    SHED_LACK_TRACKING,
    SHED_LACK_NUMSUB,
    SHED_LACKS /* their number */
};

struct shed_lack_row {
    const char *command;
    const char *cost; /* in whole sentences */
};

extern const struct shed_lack_row shed_lacks[SHED_LACKS];

#endif
