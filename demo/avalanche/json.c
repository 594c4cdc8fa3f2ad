/* See json.h. */
#include "json.h"

#include <math.h>

#define DIGITS 9 /* more than any figure needs, so 0.1 stays 0.1 */

json_t *json_number(double value, int decimals)
{
    double unit = pow(10, decimals);

    if (isnan(value))
        return json_null();
    if (decimals == 0)
        return json_integer((json_int_t)llround(value));
    return json_real(round(value * unit) / unit);
}

bool json_write(FILE *out, json_t *root)
{
    bool is_written =
        root != NULL &&
        json_dumpf(root, out, JSON_INDENT(2) | JSON_REAL_PRECISION(DIGITS)) ==
            0;

    json_decref(root);
    return is_written && fputc('\n', out) != EOF;
}
