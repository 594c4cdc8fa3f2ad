/* traffic.lua, which is part of the program. */
#ifndef HOTITEMS_STAGE_SCRIPT_H
#define HOTITEMS_STAGE_SCRIPT_H

#include <stddef.h>

extern const char stage_script[];
extern const size_t stage_script_size;

#endif
