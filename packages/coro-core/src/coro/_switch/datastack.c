/* Root chunks, what they should measure, and the caching arena allocator; see _switch/datastack.h. */
#include "_switch/datastack.h"

#include <stdint.h>
#include <string.h>

enum {
    STEP = 128,          /* size classes */
    SMALLEST = 256,      /* one frame and the headroom */
    UNKNOWN = 512,       /* for a function that was never parked: a frame or two and what they call to block */
    LARGEST = 8192,      /* beyond this CPython's own chunks are as good */
    CLASSES = LARGEST / STEP + 1,
    KEPT_BYTES = 1 << 20, /* free list limit per size class */
    NOTES = 1024,        /* power of two */
    HEADROOM = 192,      /* room above the parked depth for the frame of a helper called in passing */
    CPYTHON_CHUNK = 16 * 1024,
    SPARE_CHUNKS = 64,
};

static struct {
    _PyStackChunk *first;
    size_t count;
} free_roots[CLASSES];

static struct {
    uintptr_t key;
    uint16_t size;
} notes[NOTES];

static inline size_t
place_of(uintptr_t key)
{
    return (size_t)((key >> 4) * (uintptr_t)2654435761u >> 7) & (NOTES - 1);
}

_PyStackChunk *
coro_datastack_root(const void *key, PyObject ***top, PyObject ***limit)
{
    size_t size = UNKNOWN, class;
    _PyStackChunk *root;
    uintptr_t k = (uintptr_t)key;
    if (k != 0 && notes[place_of(k)].key == k) {
        size = notes[place_of(k)].size;
    }
    class = size / STEP;
    root = free_roots[class].first;
    if (root != NULL) {
        free_roots[class].first = root->previous;
        free_roots[class].count--;
    } else {
        root = PyMem_RawMalloc(size);
        if (root == NULL) {
            return NULL;
        }
    }
    root->previous = NULL;
    root->size = size;
    root->top = 0;
    *top = &root->data[1]; /* CPython leaves the first word of a root chunk unused and relies on it */
    *limit = (PyObject **)((char *)root + size);
    return root;
}

void
coro_datastack_note(const void *key, _PyStackChunk *root, _PyStackChunk *chunk, PyObject **top)
{
    uintptr_t k = (uintptr_t)key;
    size_t used, at;
    if (k == 0 || root == NULL) {
        return;
    }
    used = (size_t)((char *)top - (char *)chunk);
    if (chunk != root) {
        if (chunk->previous != root) {
            return; /* far beyond any root chunk */
        }
        used += root->size;
    }
    used += HEADROOM;
    if (used > LARGEST) {
        return;
    }
    used = (used + STEP - 1) / STEP * STEP;
    if (used < SMALLEST) {
        used = SMALLEST;
    }
    at = place_of(k);
    if (notes[at].key != k) {
        notes[at].key = k;
        notes[at].size = (uint16_t)used;
    } else if (used > notes[at].size) {
        notes[at].size = (uint16_t)used;
    }
}

void
coro_datastack_release(_PyStackChunk *root, _PyStackChunk *chunk)
{
    PyObjectArenaAllocator arena;
    size_t class;
    if (root == NULL) {
        return;
    }
    while (chunk != NULL && chunk != root) {
        _PyStackChunk *previous = chunk->previous;
        PyObject_GetArenaAllocator(&arena);
        arena.free(arena.ctx, chunk, chunk->size);
        chunk = previous;
    }
    class = root->size / STEP;
    if (free_roots[class].count * root->size < KEPT_BYTES) {
        root->previous = free_roots[class].first;
        free_roots[class].first = root;
        free_roots[class].count++;
    } else {
        PyMem_RawFree(root);
    }
}

#if PY_VERSION_HEX < 0x030E0800
static PyObjectArenaAllocator inner;
static void *spares[SPARE_CHUNKS];
static int spare_count;

static void *
arena_alloc(void *context, size_t size)
{
    (void)context;
    if (size == CPYTHON_CHUNK && spare_count > 0) {
        return spares[--spare_count];
    }
    return inner.alloc(inner.ctx, size);
}

static void
arena_free(void *context, void *block, size_t size)
{
    (void)context;
    if (size == CPYTHON_CHUNK && block != NULL && spare_count < SPARE_CHUNKS) {
        spares[spare_count++] = block;
        return;
    }
    inner.free(inner.ctx, block, size);
}

void
coro_datastack_setup(void)
{
    static int done;
    PyObjectArenaAllocator mine = {NULL, arena_alloc, arena_free};
    if (!done) {
        done = 1;
        PyObject_GetArenaAllocator(&inner);
        PyObject_SetArenaAllocator(&mine);
    }
}
#else
void
coro_datastack_setup(void)
{
}
#endif
