/* A program in C with tracepoints, and with LIBRARY a library for it:
 *     cargo rustc --release -p kymo-tracepoint --crate-type staticlib
 *     cc -rdynamic shop.c -I../include libkymo_tracepoint.a -lpthread -ldl -lm -o shop
 *     cc -shared -fPIC -DLIBRARY shop.c -I../include -o libshop.so
 *     ./shop 10 ./libshop.so
 */
#include "kymo_tracepoint.h"
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#ifdef LIBRARY
#define PARCEL_FIELDS(F) F(u32, number) F(str, where)
KYMO_TRACEPOINT(shop, parcel, KYMO_NOTICE, "parcel {number} to {where}", PARCEL_FIELDS)

void send_parcel(int number)
{
    kymo_emit(shop, parcel, number, "nowhere");
}
#else
#define SALE_FIELDS(F) F(u64, id) F(str, customer) F(f64, euros) F(i16, change) F(boolean, card) \
    F(x32, colour)
KYMO_TRACEPOINT(shop, sale, KYMO_INFO, "sale {id} to {customer}", SALE_FIELDS)
#define NO_FIELDS(F)
KYMO_TRACEPOINT(shop, closed, KYMO_DEBUG, "", NO_FIELDS)

int main(int argc, char **argv)
{
    int rounds = argc > 1 ? atoi(argv[1]) : 10;
    for (int i = 0; i < rounds; i++)
        kymo_emit(shop, sale, i, i % 2 ? "somebody" : NULL, i + 0.25, -i, i % 2, 0xff00 + i);
    /* Loaded twice: its event has the same number both times. */
    for (int turn = 0; argc > 2 && turn < 2; turn++) {
        void *library = dlopen(argv[2], RTLD_NOW);
        void (*send_parcel)(int) = library ? (void (*)(int))dlsym(library, "send_parcel") : NULL;
        if (!send_parcel) {
            fprintf(stderr, "%s\n", dlerror());
            return 1;
        }
        send_parcel(turn);
        dlclose(library);
    }
    kymo_emit(shop, closed);
    return 0;
}
#endif
