/* The tracepoints of the shop: every source file of it includes this. */
#ifndef SHOP_EVENTS_H
#define SHOP_EVENTS_H

#include "kymo_tracepoint.h"

enum payment { PAID_CASH = 1, PAID_CARD, PAID_VOUCHER = 10 };

KYMO_TRACEPOINT_ENUM(
    shop, payment,
    KYMO_TP_ENUM_VALUES(
        kymo_enum_value("Cash", PAID_CASH), kymo_enum_value("Card", PAID_CARD),
        kymo_enum_range("Voucher", PAID_VOUCHER, PAID_VOUCHER + 9)))

struct basket {
    const uint16_t *articles;
    size_t count;
    unsigned char code[4];
};

KYMO_TRACEPOINT_EVENT(
    shop, sale,
    KYMO_TP_PROTO(uint64_t id, const char *customer, int64_t cents, enum payment payment,
                  const struct basket *basket, void (*seller)(int)),
    KYMO_TP_ARGS(id, customer, cents, payment, basket, seller),
    KYMO_TP_FIELDS(
        kymo_field_integer(uint64_t, id, id),
        kymo_field_string(customer, customer),
        kymo_field_float(double, euros, (double)cents / 100),
        kymo_field_integer(int16_t, change, -cents % 100),
        kymo_field_bool(large, cents > 10000),
        kymo_field_enum(shop, payment, uint8_t, payment, payment),
        kymo_field_array(unsigned char, code, basket->code, 4),
        kymo_field_sequence(uint16_t, articles, basket->articles, basket->count),
        kymo_field_symbol(seller, seller)),
    KYMO_TP_PRINT("sale {id} to {customer}: {euros} EUR by {payment}, sold by {seller}"),
    KYMO_TP_LEVEL(KYMO_INFO),
    KYMO_TP_CONDITION(cents != 0),
    KYMO_TP_DOC("Something has been sold."))

KYMO_TRACEPOINT_EVENT_CLASS(
    shop, door,
    KYMO_TP_PROTO(uint32_t who),
    KYMO_TP_ARGS(who),
    KYMO_TP_FIELDS(kymo_field_integer(uint32_t, who, who)),
    KYMO_TP_PRINT("by {who}"),
    KYMO_TP_LEVEL(KYMO_NOTICE))
KYMO_TRACEPOINT_EVENT_INSTANCE(shop, door, door_opened, KYMO_TP_DOC("Customer entered."))
KYMO_TRACEPOINT_EVENT_INSTANCE(shop, door, door_closed, KYMO_TP_LEVEL(KYMO_DEBUG))

#endif
