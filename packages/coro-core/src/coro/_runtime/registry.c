/* The table declared in _runtime/registry.h: linear probing, entries moved back on removal so that no tombstones
   remain. */
#include "_runtime/registry.h"

enum { SMALLEST = 64 };

coro_registry_entry *coro_registry;
size_t coro_registry_room;
size_t coro_registry_count;

static inline size_t
home_of(uint64_t id, size_t mask)
{
    return (size_t)((id * UINT64_C(0x9E3779B97F4A7C15)) >> 32) & mask;
}

static int
resize(size_t room)
{
    coro_registry_entry *old = coro_registry, *table = PyMem_RawCalloc(room, sizeof(*table));
    size_t i, mask = room - 1;
    if (table == NULL) {
        return -1;
    }
    for (i = 0; i < coro_registry_room; i++) {
        if (old[i].id != 0) {
            size_t at = home_of(old[i].id, mask);
            while (table[at].id != 0) {
                at = (at + 1) & mask;
            }
            table[at] = old[i];
        }
    }
    PyMem_RawFree(old);
    coro_registry = table;
    coro_registry_room = room;
    return 0;
}

int
coro_registry_add(uint64_t id, PyObject *thread)
{
    size_t at, mask;
    if (coro_registry_count * 2 >= coro_registry_room
        && resize(coro_registry_room ? coro_registry_room * 2 : SMALLEST) < 0) {
        return -1;
    }
    mask = coro_registry_room - 1;
    at = home_of(id, mask);
    while (coro_registry[at].id != 0) {
        at = (at + 1) & mask;
    }
    coro_registry[at].id = id;
    coro_registry[at].thread = thread;
    coro_registry_count++;
    return 0;
}

static size_t
locate(uint64_t id)
{
    size_t mask = coro_registry_room - 1, at;
    if (coro_registry_room == 0 || id == 0) {
        return SIZE_MAX;
    }
    for (at = home_of(id, mask); coro_registry[at].id != 0; at = (at + 1) & mask) {
        if (coro_registry[at].id == id) {
            return at;
        }
    }
    return SIZE_MAX;
}

PyObject *
coro_registry_find(uint64_t id)
{
    size_t at = locate(id);
    return at == SIZE_MAX ? NULL : coro_registry[at].thread;
}

PyObject *
coro_registry_remove(uint64_t id)
{
    size_t mask = coro_registry_room - 1, at = locate(id), next;
    PyObject *thread;
    if (at == SIZE_MAX) {
        return NULL;
    }
    thread = coro_registry[at].thread;
    coro_registry_count--;
    for (next = (at + 1) & mask; coro_registry[next].id != 0; next = (next + 1) & mask) {
        size_t home = home_of(coro_registry[next].id, mask);
        if (((next - home) & mask) >= ((next - at) & mask)) {
            coro_registry[at] = coro_registry[next];
            at = next;
        }
    }
    coro_registry[at].id = 0;
    coro_registry[at].thread = NULL;
    if (coro_registry_room > SMALLEST && coro_registry_count * 8 < coro_registry_room) {
        resize(coro_registry_room / 2); /* a shrink that fails leaves the larger table, which is as good */
    }
    return thread;
}
