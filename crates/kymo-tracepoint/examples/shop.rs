//! A program with tracepoints of every kind: `cargo run -p kymo-tracepoint --example shop -- 1000`.

use kymo_tracepoint::{
    Level, Symbol, counter, emit, histogram, mark, tracepoint, tracepoint_class, tracepoint_enum,
};

tracepoint_enum! {
    /// Means of payment.
    pub enum Payment: u8 { Cash = 1, Card = 2 }
}

tracepoint! {
    /// Something has been sold.
    pub shop: sale(id: u64, customer: &str, cents: i64, payment: Payment) {
        fields {
            id: u64 = id,
            customer: str = customer,
            euros: f64 = cents as f64 / 100.0,
            cents: i32 = cents as i32,
            large: bool = cents > 10_000,
            payment: Payment = payment,
            digits: [u8; 4] = &(cents as u32).to_be_bytes(),
            history: [u16] = &[1, 2, cents as u16],
            from: Symbol = Symbol::from(main as *const ()),
        }
        print "sale {id} to {customer}: {euros} EUR by {payment}"
        level Level::Info
        when cents != 0
    }
}

tracepoint_class! {
    pub shop: door(who: u32) {
        fields { who: u32 = who }
        print "by {who}"
    }
    events {
        /// Customer entered.
        door_opened;
        /// Customer left.
        door_closed;
    }
}

fn main() {
    let rounds = std::env::args().nth(1).and_then(|n| n.parse().ok()).unwrap_or(10);
    for i in 0..rounds {
        emit!(door_opened(i as u32));
        let payment = if i % 2 == 0 { Payment::Cash } else { Payment::Card };
        counter!(shop: sales);
        counter!(shop: payments, by if i % 2 == 0 { "cash" } else { "card" });
        histogram!(shop: basket_cents, i * 1001);
        emit!(sale(i, &format!("customer {i}"), i as i64 * 1001 - 3, payment));
        mark!(shop: thinking, "about {what}, {deep}", what: str = "life", deep: u64 = i);
        emit!(door_closed(i as u32));
    }
}
