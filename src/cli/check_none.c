/* check, for builds without the MySQL source. */
#include "cli/cli.h"

int cli_check(struct cli_call *call)
{
    cli_fail(call, CLI_USAGE,
             "this snowshed was built without MySQL: configure it with "
             "-DSNOWSHED_MYSQL=ON");
}
