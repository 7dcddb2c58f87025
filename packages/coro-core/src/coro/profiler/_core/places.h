/* Which places of the program need no events for what they call.

   The interpreter reports every call, of Python functions, too, whose beginning it reports anyway: a third of the
   events of a call. Once a place (code, offset) has called nothing but functions that are known to begin in another
   way, Python's and those that report themselves, often enough, its CALL event is disabled, and the interpreter runs it
   as fast as without a profiler. If it calls another C function after all, nobody tells; that is charged to the caller.
   A place that did so before keeps its events to the end of the profile, so that every call that was told of is told to
   end.

   Cost: some ten instructions for an event, 32 bytes for a place. Only from Python 3.12 on: 3.11 cannot disable an
   event at one place. */
#ifndef CORO_PROFILE_PLACES_H
#define CORO_PROFILE_PLACES_H

#include "profiler/_core/calls.h"

#if PY_VERSION_HEX >= 0x030C0000

/* Not inlined: the place is new, or not the first one to be looked at. NULL: there is no memory to note it. */
static __attribute__((noinline)) coro_profile_call_place *
coro_profile_look_for_place(const void *code, Py_ssize_t offset)
{
    coro_profile_state *p = &coro_profile;
    size_t i;
    if ((p->places_count + 1) * 2 > p->places_room) {
        size_t room = p->places_room * 2, j;
        coro_profile_call_place *larger = calloc(room, sizeof(*larger));
        if (larger == NULL) {
            return NULL;
        }
        for (j = 0; j < p->places_room; j++) {
            if (p->places[j].code != NULL) {
                i = coro_profile_place_hash(p->places[j].code, p->places[j].offset) & (room - 1);
                while (larger[i].code != NULL) {
                    i = (i + 1) & (room - 1);
                }
                larger[i] = p->places[j];
            }
        }
        free(p->places);
        p->places = larger;
        p->places_room = room;
    }
    i = coro_profile_place_hash(code, offset) & (p->places_room - 1);
    for (; p->places[i].code != NULL; i = (i + 1) & (p->places_room - 1)) {
        if (p->places[i].code == code && p->places[i].offset == offset) {
            return &p->places[i];
        }
    }
    p->places_count++;
    p->places[i].code = code;
    p->places[i].offset = (int32_t)offset;
    return &p->places[i];
}

static inline coro_profile_call_place *
coro_profile_place_at(const void *code, PyObject *offset)
{
    coro_profile_state *p = &coro_profile;
    Py_ssize_t o = PyUnstable_Long_CompactValue((PyLongObject *)offset);
    coro_profile_call_place *place = &p->places[coro_profile_place_hash(code, o) & (p->places_room - 1)];
    return place->code == code && place->offset == o ? place : coro_profile_look_for_place(code, o);
}

/* A place calls what is told of anyway. 1: its event is not needed any more. */
static inline int
coro_profile_place_is_quiet(const void *code, PyObject *offset)
{
    coro_profile_call_place *place = coro_profile_place_at(code, offset);
    if (CORO_PROFILE_RARE(place == NULL) || place->calls < 0) {
        return 0;
    }
    place->calls += place->calls < CORO_PROFILE_OFTEN;
    return place->calls == CORO_PROFILE_OFTEN;
}

/* A place calls what only its event tells of. */
static inline void
coro_profile_place_is_needed(const void *code, PyObject *offset)
{
    coro_profile_call_place *place = coro_profile_place_at(code, offset);
    if (!CORO_PROFILE_RARE(place == NULL)) {
        place->calls = -1;
    }
}

#endif

#endif
