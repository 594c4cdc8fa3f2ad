/* The statements about seats and charges. */
#ifndef DEMO_SEATS_LEDGER_H
#define DEMO_SEATS_LEDGER_H

#include "common/statements.h"
#include "showing.h"

#define PRICE_CENTS 1200

/* Connect. Returns NULL on failure, with the reason in why; if tables are
 * missing it names their files. */
struct statements *ledger_open(char *why, size_t size);

/* The unsold seats of a showing, at most max of them. */
enum statement_code ledger_list_free(struct statements *s, uint64_t showing,
                                     uint64_t *seats, size_t max,
                                     size_t *count);

/* The buyer who has a seat; 0: nobody. STATEMENT_NONE: no such seat. */
enum statement_code ledger_read_buyer(struct statements *s, uint64_t seat,
                                      uint64_t *buyer);

/* Sell a seat if nobody has it; otherwise STATEMENT_NONE. */
enum statement_code ledger_sell(struct statements *s, uint64_t seat,
                                uint64_t buyer, uint64_t token);

/* Give the seat to the buyer, whether or not another has it. */
enum statement_code ledger_overwrite(struct statements *s, uint64_t seat,
                                     uint64_t buyer);

enum statement_code ledger_charge(struct statements *s, uint64_t seat,
                                  uint64_t buyer, uint64_t token);

/* ------------------------------------------------------- for the runner */

/* Empty both tables. */
enum statement_code ledger_clear(struct statements *s);

enum statement_code ledger_add_seat(struct statements *s, uint64_t seat,
                                    uint64_t showing);

/* What the database says about a showing: X(field, its name in the table). The
 * last four are 0 if nobody was wronged. */
#define PROOF_FIGURES(X)                                                       \
    X(seats, "seats")                                                          \
    X(sold, "seats sold")                                                      \
    X(charges, "charges")                                                      \
    X(untold, "... killed before they were told")                              \
    X(in_vain, "charged for a seat of another")                                \
    X(twice, "seats charged more than once")                                   \
    X(unpaid, "seats without their buyer's charge")                            \
    X(misled, "buyers told what is not so")

struct proof {
#define PROOF_FIELD(field, title) uint64_t field;
    PROOF_FIGURES(PROOF_FIELD)
#undef PROOF_FIELD
};

enum statement_code ledger_prove(struct statements *s,
                                 const struct showing *showing,
                                 struct proof *proof);

#endif
