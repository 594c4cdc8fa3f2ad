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
        printf("  %-*s %10u %10llu %10llu\n", NAME_COLUMNS - 2,
               d->faults[i].name, d->faults[i].made,
               (ull)atomic_load(&a->calls[i]),
               (ull)atomic_load(&a->failures[i]));
    printf("%-*s %10llu (allowed: %llu)\n", NAME_COLUMNS,
           "last failure after a fault, ms", (ull)a->aftermath_ms,
           (ull)a->settle_ms);
    printf("%-*s %10llu (allowed: %llu)\n", NAME_COLUMNS,
           "latest return after a deadline, ms", (ull)a->latest_ms,
           (ull)a->late_ms);
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

static void print_growth(const char *name, unsigned long early,
                         unsigned long late)
{
    printf("%-*s %10lu, then %lu\n", NAME_COLUMNS, name, early, late);
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
    print_count("locks held", h->locks);
    print_growth("memory, KiB", d->early.kib, d->late.kib);
    print_growth("  of it allocated", d->early.allocated_kib,
                 d->late.allocated_kib);
    print_growth("descriptors", d->early.descriptors, d->late.descriptors);
    print_growth("threads", d->early.threads, d->late.threads);
    printf("\nfound\n");
    for (unsigned i = 0; i < SOAK_VIOLATIONS; i++)
        printf("  %-*s %10llu\n", NAME_COLUMNS - 2, soak_violations[i],
               (ull)h->violations[i]);
    fflush(stdout);
}

/* ------------------------------------------------------------------- JSON */

static void write_row(FILE *file, const char *before, const char *name,
                      const _Atomic uint64_t counts[SOAK_WORKERS])
{
    fprintf(file, "%s\"%s\": [", before, name);
    for (unsigned i = 0; i < SOAK_WORKERS; i++)
        fprintf(file, "%s%llu", i > 0 ? ", " : "",
                (ull)atomic_load(&counts[i]));
    fprintf(file, "]");
}

/* Each count is a list, with an element for each process. */
static void write_calls(FILE *file, const struct soak_account *a)
{
    fprintf(file, "  \"processes\": [");
    for (unsigned i = 0; i < SOAK_WORKERS; i++)
        fprintf(file, "%s\"%s\"", i > 0 ? ", " : "", soak_policies[i]);
    fprintf(file, "],\n  \"answers\": {");
    for (unsigned i = 0; i < SOAK_ORIGINS; i++)
        write_row(file, i > 0 ? ",\n    " : "\n    ", soak_origins[i],
                  a->answers[i]);
    write_row(file, ",\n    ", "kept", a->kept);
    fprintf(file, "\n  },\n");
    for (unsigned work = 0; work < SOAK_WORKS; work++) {
        fprintf(file, "  \"%s\": {", soak_works[work]);
        for (unsigned code = 0; code < SOAK_CODES; code++)
            write_row(file, code > 0 ? ",\n    " : "\n    ",
                      shed_code_name((enum shed_code)code),
                      a->ended[work][code]);
        fprintf(file, "\n  },\n");
    }
}

static void write_faults(FILE *file, const struct soak_report_data *d)
{
    const struct soak_account *a = &d->history->account;

    fprintf(file, "  \"faults\": {");
    for (unsigned i = 0; i < d->fault_count; i++)
        fprintf(file,
                "%s\n    \"%s\": {\"made\": %u, \"calls\": %llu, \"failed\": "
                "%llu}",
                i > 0 ? "," : "", d->faults[i].name, d->faults[i].made,
                (ull)atomic_load(&a->calls[i]),
                (ull)atomic_load(&a->failures[i]));
    fprintf(file,
            "\n  },\n  \"failed_after_fault_ms\": %llu,\n"
            "  \"returned_late_ms\": %llu,\n",
            (ull)a->aftermath_ms, (ull)a->latest_ms);
}

static void write_loads(FILE *file, const struct soak_fleet *f)
{
    fprintf(file,
            "  \"loads\": {\"allowed\": %d, \"most\": %llu, \"looks\": %llu,\n"
            "    \"most_of_all\": %llu, \"looks_of_all\": %llu, "
            "\"waited\": %llu},\n",
            (int)SOAK_FLEET_LOADS, (ull)f->bound_most, (ull)f->bound_looks,
            (ull)f->most, (ull)f->looks, (ull)f->waits);
}

bool soak_write_json(const struct soak_report_data *d, const char *path)
{
    const struct soak_history *h = d->history;
    FILE *file = fopen(path, "we");

    if (file == NULL)
        return false;
    fprintf(file, "{\n  \"seed\": %llu,\n", (ull)d->seed);
    write_calls(file, &h->account);
    write_faults(file, d);
    write_loads(file, &h->fleet);
    fprintf(file, "  \"violations\": {");
    for (unsigned i = 0; i < SOAK_VIOLATIONS; i++)
        fprintf(file, "%s\n    \"%s\": %llu", i > 0 ? "," : "",
                soak_violations[i], (ull)h->violations[i]);
    fprintf(file,
            "\n  },\n  \"changes\": %llu,\n  \"puts\": %llu,\n"
            "  \"locks\": %llu,\n  \"kib\": [%lu, %lu],\n"
            "  \"allocated_kib\": [%lu, %lu],\n"
            "  \"descriptors\": [%lu, %lu],\n  \"threads\": [%lu, %lu]\n}\n",
            (ull)h->writes, (ull)h->puts, (ull)h->locks, d->early.kib,
            d->late.kib, d->early.allocated_kib, d->late.allocated_kib,
            d->early.descriptors, d->late.descriptors, d->early.threads,
            d->late.threads);
    return fclose(file) == 0;
}
