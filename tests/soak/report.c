/* Writes what the soak has counted. */
#include "soak/report.h"

#include <stdio.h>

#include "soak/worker.h"

enum { NAME_COLUMNS = 52 };

typedef unsigned long long ull;

static uint64_t sum_of(const _Atomic uint64_t counts[SOAK_WORKERS])
{
    uint64_t all = 0;

    for (unsigned i = 0; i < SOAK_WORKERS; i++)
        all += atomic_load(&counts[i]);
    return all;
}

void soak_tell_progress(const struct soak_history *h, uint64_t after_s,
                        unsigned faults, const char *fault)
{
    const struct soak_account *a = &h->account;
    ull found = 0;

    for (unsigned i = 0; i < SOAK_VIOLATIONS; i++)
        found += atomic_load(&h->violations[i]);
    printf(
        "%6llu s  %u faults (last: %s), %llu reads, %llu of them failed, "
        "%llu writes, %llu found\n",
        (ull)after_s, faults, fault,
        (ull)(soak_ended(a, SOAK_READ, SHED_OK) + soak_failures(a, SOAK_READ)),
        (ull)soak_failures(a, SOAK_READ), (ull)atomic_load(&h->writes), found);
    fflush(stdout);
}

/* ------------------------------------------------------------------ table */

static void print_count(const char *name, uint64_t count)
{
    printf("%-*s %10llu\n", NAME_COLUMNS, name, (ull)count);
}

static void print_limit(const char *name, uint64_t count, uint64_t allowed)
{
    printf("%-*s %10llu (allowed: %llu)\n", NAME_COLUMNS, name, (ull)count,
           (ull)allowed);
}

static void print_heading(const char *title, const char *last)
{
    printf("\n%-*s", NAME_COLUMNS, title);
    for (unsigned i = 0; i < SOAK_WORKERS; i++)
        printf(" %10s", soak_policies[i]);
    printf(" %10s\n", last);
}

static void print_row(const char *name,
                      const _Atomic uint64_t counts[SOAK_WORKERS])
{
    if (sum_of(counts) == 0)
        return;
    printf("  %-*s", NAME_COLUMNS - 2, name);
    for (unsigned i = 0; i < SOAK_WORKERS; i++)
        printf(" %10llu", (ull)atomic_load(&counts[i]));
    printf(" %10llu\n", (ull)sum_of(counts));
}

static void print_calls(const struct soak_account *a)
{
    print_heading("answers to reads, by process", "all");
    for (unsigned i = 0; i < SOAK_ORIGINS; i++)
        print_row(soak_origins[i], a->answers[i]);
    print_row("of the stale ones: kept by the process", a->kept);
    for (unsigned work = 0; work < SOAK_WORKS; work++) {
        printf("%s\n", soak_works[work]);
        for (unsigned code = SHED_OK; code < SOAK_CODES; code++)
            print_row(shed_code_name((enum shed_code)code),
                      a->ended[work][code]);
    }
}

static void print_faults(const struct soak_report_data *d)
{
    const struct soak_account *a = &d->history->account;

    printf("\n%-*s %10s %10s %10s\n", NAME_COLUMNS,
           "faults, and calls until the next that can be felt", "made", "calls",
           "failed");
    for (unsigned i = 0; i < d->fault_count; i++)
        if (d->faults[i].name != NULL)
            printf("  %-*s %10u %10llu %10llu\n", NAME_COLUMNS - 2,
                   d->faults[i].name, d->faults[i].made,
                   (ull)atomic_load(&a->calls[i]),
                   (ull)atomic_load(&a->failures[i]));
    print_limit("last failure after a fault, ms", a->aftermath_ms,
                a->settle_ms);
    print_limit("latest return after a deadline, ms", a->latest_ms, a->late_ms);
    print_limit("a row stored after it was replaced, ms", d->history->late_ms,
                d->history->load_ms);
    print_count("  with a fault meanwhile, which is added",
                d->history->troubled_ms);
    print_limit("an age beyond its windows, ms", d->history->ahead_ms,
                SOAK_QUICK_MS);
}

/* Of the loads while they are bound, and of all. */
static void print_loads(const struct soak_fleet *f)
{
    printf("\n%-*s %10s %10s\n", NAME_COLUMNS, "loads in the database", "bound",
           "all");
    printf("  %-*s %10llu %10llu (allowed: %d)\n", NAME_COLUMNS - 2,
           "most at a time", (ull)f->bound_most, (ull)f->most,
           (int)SOAK_FLEET_LOADS);
    printf("  %-*s %10llu %10llu\n", NAME_COLUMNS - 2, "looks",
           (ull)f->bound_looks, (ull)f->looks);
    printf("  %-*s %10s %10llu\n", NAME_COLUMNS - 2, "waited for a slot", "",
           (ull)f->waits);
}

/* What a process has held, early and late, or before and after. */
static void print_growth(unsigned process, const char *when,
                         const struct soak_sample *first,
                         const struct soak_sample *then)
{
    char name[NAME_COLUMNS];

    (void)snprintf(name, sizeof(name), "  %s, %s", soak_policies[process],
                   when);
    printf("%-*s %8lu, then %-8lu %8lu, then %-8lu %4lu, then %-4lu %4lu, then "
           "%lu\n",
           NAME_COLUMNS, name, first->kib, then->kib, first->allocated_kib,
           then->allocated_kib, first->descriptors, then->descriptors,
           first->threads, then->threads);
}

static void print_all_growth(const struct soak_report_data *d)
{
    const struct soak_history *h = d->history;

    printf("%-*s %22s %22s %14s %14s\n", NAME_COLUMNS, "held by a process",
           "memory, KiB", "allocated, KiB", "descriptors", "threads");
    for (unsigned i = 0; i < SOAK_LASTING; i++)
        print_growth(i, "early and late", &d->early[i], &d->late[i]);
    for (unsigned i = 0; i < SOAK_WORKERS; i++)
        print_growth(i, "before and after", &h->before[i], &h->after[i]);
}

void soak_print(const struct soak_report_data *d)
{
    const struct soak_history *h = d->history;

    print_calls(&h->account);
    print_faults(d);
    print_loads(&h->fleet);
    printf("\n");
    print_count("writes", h->writes);
    print_count("  of them put", h->puts);
    print_count("  of them not told to the cache", h->untold);
    print_count("  of them kept for Redis", h->kept);
    print_count("  of them repeated, because of another server", h->repeated);
    print_count("old rows of a server that has just taken over", h->lacked);
    print_count("locks held", h->locks);
    print_all_growth(d);
    printf("\nfound\n");
    for (unsigned i = 0; i < SOAK_VIOLATIONS; i++)
        printf("  %-*s %10llu\n", NAME_COLUMNS - 2, soak_violations[i],
               (ull)h->violations[i]);
    fflush(stdout);
}
