/* The scenes of the demo, in the order in which they are played. */
#ifndef DEMO_SEATS_SCENES_H
#define DEMO_SEATS_SCENES_H

#include "stage.h"

#define SCENES 10
extern const struct script *const seats_scenes[SCENES];

/* Those of a whole hall: without a hold, and with. */
extern const struct script rush_without, rush_with;

#endif
