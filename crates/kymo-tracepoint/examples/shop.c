/* A program in C with tracepoints, and with LIBRARY a library for it. `cargo xtask c-library` has
 * made header and libraries in target/c:
 *     export PKG_CONFIG_PATH=target/c/lib/pkgconfig
 *     cc -rdynamic shop.c $(pkg-config --cflags --libs kymo-tracepoint-static) -o shop
 *     cc -shared -fPIC -DLIBRARY shop.c $(pkg-config --cflags kymo-tracepoint) -o libshop.so
 *     kymo trace -u 'shop:*' -- ./shop 10 ./libshop.so
 */
#ifdef LIBRARY
#include "kymo_tracepoint.h"
#else
#include "shop_events.h"
#endif
#include "kymo_counter.h"
#include <dlfcn.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#ifdef LIBRARY
/* The short form, for events that store what they are given. */
#define PARCEL_FIELDS(F) F(u32, number) F(str, where)
KYMO_TRACEPOINT(shop, parcel, KYMO_NOTICE, "parcel {number} to {where}", PARCEL_FIELDS)

KYMO_COUNTER(shop, parcels, "Parcels that were sent.")

void send_parcel(int number);
void send_parcel(int number)
{
    kymo_emit(shop, parcel, number, "nowhere");
    kymo_count(shop, parcels);
}
#else
KYMO_COUNTER_BY(shop, payments, "Sales by means of payment.")
KYMO_HISTOGRAM(shop, basket_cents, "Worth of a sale.")

void sell(int number);
void sell(int number)
{
    const uint16_t articles[] = { 1, 2, (uint16_t)number };
    const struct basket basket = { articles, (size_t)number % 4, { 'a', 'b', 'c', 'd' } };
    const enum payment payment = number % 3 ? PAID_CARD : PAID_VOUCHER;
    kymo_emit(shop, sale, number, number % 2 ? "Alice" : NULL, 1001 * number, payment, &basket,
              sell);
    kymo_count_text(shop, payments, payment == PAID_CARD ? "card" : "voucher");
    kymo_sample(shop, basket_cents, 1001 * number);
}

/* A callback: the arguments of the tracepoint behind a pointer of its own. */
static void add_up(void *total, uint64_t id, const char *customer, int64_t cents,
                   enum payment payment, const struct basket *basket, void (*seller)(int))
{
    (void)id, (void)customer, (void)payment, (void)basket, (void)seller;
    *(int64_t *)total += cents;
}

int main(int argc, char **argv)
{
    const int rounds = argc > 1 ? atoi(argv[1]) : 10;
    int64_t total = 0;
    kymo_register(shop, sale, add_up, &total);
    for (int i = 0; i < rounds; i++) {
        kymo_emit(shop, door_opened, i);
        sell(i);
        kymo_emit(shop, door_closed, i);
    }
    kymo_unregister(shop, sale, add_up, &total);
    kymo_synchronize();
    printf("%" PRId64 " cents\n", total);
    fflush(stdout);
    if (argc > 2 && strcmp(argv[2], "-") == 0) {
        /* Stays until its standard input ends. */
        while (getchar() != EOF)
            continue;
        return 0;
    }
    /* Loaded twice: its event has the same number both times. */
    for (int turn = 0; argc > 2 && turn < 2; turn++) {
        void *library = dlopen(argv[2], RTLD_NOW);
        void (*send_parcel)(int) = NULL;
        if (library)
            *(void **)&send_parcel = dlsym(library, "send_parcel");
        if (!send_parcel) {
            fprintf(stderr, "%s\n", dlerror());
            return 1;
        }
        send_parcel(turn);
        dlclose(library);
    }
    return 0;
}
#endif
