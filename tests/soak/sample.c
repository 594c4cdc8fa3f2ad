#include "soak/sample.h"

#include <dirent.h>
#include <malloc.h>
#include <stdio.h>
#include <unistd.h>

enum {
    /* Of a process that goes on: connections of a pool that are open now and
     * were not early on. A pool has one for each thread, at most, of which some
     * are idle; 2 more or fewer were seen. */
    SLACK_DESCRIPTORS = 8,
    SLACK_THREADS = 4, /* of the source, which ends queries */
    SLACK_KIB = 8192,
    /* Buffers of these connections, and nodes of what is kept, which has a
     * bounded number of keys: between 30 KiB less and 50 more were seen in five
     * minutes. In two thirds of an hour are 10000 faults. */
    SLACK_ALLOCATED_KIB = 256,
    /* Of one that has closed all: libuv keeps a pipe, and libraries keep 25 KiB
     * that do not depend on how long it has lived. */
    LEFT_DESCRIPTORS = 2,
    LEFT_KIB = 48
};

/* A sanitizer keeps what was freed. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define IS_MEMORY_JUDGED false
#else
#define IS_MEMORY_JUDGED true
#endif

/* The entries of a directory in /proc of a process. */
static unsigned long count_entries(pid_t pid, const char *name)
{
    unsigned long count = 0;
    char path[64];
    DIR *dir;

    snprintf(path, sizeof(path), "/proc/%d/%s", (int)pid, name);
    dir = opendir(path);
    while (dir != NULL && readdir(dir) != NULL)
        count++;
    if (dir != NULL)
        closedir(dir);
    return count;
}

struct soak_sample soak_sample_take(pid_t pid, uint64_t allocated)
{
    struct soak_sample s = {.descriptors = count_entries(pid, "fd"),
                            .threads = count_entries(pid, "task"),
                            .allocated_kib = allocated / 1024};
    unsigned long pages = 0;
    char path[64];
    FILE *file;

    snprintf(path, sizeof(path), "/proc/%d/statm", (int)pid);
    file = fopen(path, "re");
    if (file != NULL && fscanf(file, "%*u %lu", &pages) == 1)
        s.kib = pages * (unsigned long)sysconf(_SC_PAGESIZE) / 1024;
    if (file != NULL)
        fclose(file);
    return s;
}

uint64_t soak_sample_allocated(void)
{
    struct mallinfo2 info = mallinfo2();

    return info.uordblks + info.hblkhd;
}

static void lower(unsigned long *least, unsigned long to)
{
    if (to < *least)
        *least = to;
}

void soak_sample_lower(struct soak_sample *least,
                       const struct soak_sample *sample)
{
    if (least->kib == 0)
        *least = *sample;
    lower(&least->kib, sample->kib);
    lower(&least->allocated_kib, sample->allocated_kib);
    lower(&least->descriptors, sample->descriptors);
    lower(&least->threads, sample->threads);
}

bool soak_sample_is_flat(const struct soak_sample *early,
                         const struct soak_sample *late)
{
    if (early->kib == 0) /* a finding has ended the run before it was taken */
        return true;
    return late->descriptors <= early->descriptors + SLACK_DESCRIPTORS &&
           late->threads <= early->threads + SLACK_THREADS &&
           (!IS_MEMORY_JUDGED ||
            late->allocated_kib <=
                early->allocated_kib + SLACK_ALLOCATED_KIB) &&
           (!IS_MEMORY_JUDGED ||
            late->kib <= early->kib + early->kib / 10 + SLACK_KIB);
}

bool soak_sample_is_clean(const struct soak_sample *before,
                          const struct soak_sample *after)
{
    return after->descriptors <= before->descriptors + LEFT_DESCRIPTORS &&
           after->threads <= before->threads &&
           (!IS_MEMORY_JUDGED ||
            after->allocated_kib <= before->allocated_kib + LEFT_KIB);
}
