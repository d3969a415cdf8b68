//! How SQLite goes about the statements of the queue. It keeps no statistics here, so a plan does not change with what
//! is stored.

use expect_test::{Expect, expect};

use super::*;
use crate::store::engine::statement::Statement;
use crate::store::engine::values::values;
use crate::store::packs;
use crate::store::work::{claiming, draining, finalize, handoff, lane, projection, supersede};

/// What is done to tables: lists of values and their sorting are left out.
async fn plan(tampering: &mut Tampering, text: &str) -> Vec<String> {
    let explain = format!("EXPLAIN QUERY PLAN {text}");
    let rows: Vec<(i64, i64, i64, String)> = tampering.connection().read_all(&explain, values![]).await.unwrap();
    let steps = rows.into_iter().map(|(_, _, _, step)| step);
    let tables = ["work_item", "waiting", "lane", "work_item_counter"];
    let mut steps: Vec<String> =
        steps.filter(|step| step.split(' ').nth(1).is_some_and(|name| tables.contains(&name))).collect();
    steps.dedup();
    steps
}

// CLM-9: whatever is stored, each statement seeks what it is about.
#[tokio::test]
async fn the_queues_statements_seek_by_index() {
    let engine = Engine::Sqlite;
    let of_rows = |statement: &'static Statement| statement.text(engine, 32);
    let statements: [(&str, &str, Expect); 12] = [
        (
            "claim: look",
            claiming::CLAIMABLE.of(engine),
            expect![
                "SEARCH work_item USING INDEX work_item_claim (pack=? AND work_type=? AND generation=? AND state=? AND queue_class=? AND turn<?)"
            ],
        ),
        (
            "claim: due",
            claiming::DUE_SQLITE,
            expect![[r#"
            SEARCH work_item USING INTEGER PRIMARY KEY (rowid=?)
            SEARCH work_item USING COVERING INDEX work_item_claim (pack=? AND work_type=? AND generation=? AND state=? AND queue_class=? AND turn<?)"#]],
        ),
        ("claim: take", of_rows(&claiming::TAKE), expect!["SEARCH work_item USING INTEGER PRIMARY KEY (rowid=?)"]),
        ("claim: taken", of_rows(&claiming::TAKEN), expect!["SEARCH work_item USING INTEGER PRIMARY KEY (rowid=?)"]),
        (
            "finish: load",
            of_rows(&finalize::LOAD),
            expect![[r#"
                SEARCH work_item USING INDEX sqlite_autoindex_work_item_1 (id=?)
                SEARCH lane USING INTEGER PRIMARY KEY (rowid=?)"#]],
        ),
        ("finish: end", of_rows(&finalize::END), expect!["SEARCH work_item USING INTEGER PRIMARY KEY (rowid=?)"]),
        (
            "renew",
            of_rows(&finalize::RENEW),
            expect!["SEARCH work_item USING INDEX sqlite_autoindex_work_item_1 (id=?)"],
        ),
        (
            "renew: held",
            of_rows(&finalize::HELD),
            expect!["SEARCH work_item USING INDEX sqlite_autoindex_work_item_1 (id=?)"],
        ),
        (
            "promote: delivery lanes",
            of_rows(&lane::IN_DELIVERY_LANES),
            expect![[r#"
            SEARCH work_item USING INTEGER PRIMARY KEY (rowid=?)
            SEARCH waiting USING INDEX work_item_waiting_delivery (waiting_delivery=?)"#]],
        ),
        (
            "promote: lanes of sources",
            of_rows(&lane::IN_SOURCE_LANES),
            expect![[r#"
            SEARCH work_item USING INTEGER PRIMARY KEY (rowid=?)
            SEARCH waiting USING INDEX work_item_waiting_source (waiting_source=?)"#]],
        ),
        (
            "promote: blockers",
            of_rows(&lane::SET_BLOCKERS),
            expect!["SEARCH work_item USING INTEGER PRIMARY KEY (rowid=?)"],
        ),
        ("promote: heads", of_rows(&lane::SET_HEAD), expect!["SEARCH lane USING INTEGER PRIMARY KEY (rowid=?)"]),
    ];
    check(statements).await;
}

// CLM-9: so do those of handoffs, projections and drains.
#[tokio::test]
async fn what_follows_an_end_seeks_by_index() {
    let of_rows = |statement: &'static Statement| statement.text(Engine::Sqlite, 32);
    let statements: [(&str, &str, Expect); 7] = [
        (
            "handoff: who waits",
            handoff::WAITING,
            expect!["SEARCH work_item USING INDEX work_item_waiting_source (waiting_source=?)"],
        ),
        (
            "projection: who is queued",
            of_rows(&projection::QUEUED),
            expect!["SEARCH work_item USING INDEX work_item_waiting_source (waiting_source=?)"],
        ),
        ("supersede", of_rows(&supersede::SUPERSEDE), expect!["SEARCH work_item USING INTEGER PRIMARY KEY (rowid=?)"]),
        ("drain: load", of_rows(&draining::LOAD), expect!["SEARCH work_item USING INTEGER PRIMARY KEY (rowid=?)"]),
        ("drain: move", of_rows(&draining::MOVE), expect!["SEARCH work_item USING INTEGER PRIMARY KEY (rowid=?)"]),
        ("drain: end", of_rows(&draining::END), expect!["SEARCH work_item USING INTEGER PRIMARY KEY (rowid=?)"]),
        (
            "generations that are served",
            packs::SERVING,
            expect![
                "SEARCH work_item USING COVERING INDEX work_item_claim (pack=? AND work_type=? AND generation=? AND state=?)"
            ],
        ),
    ];
    check(statements).await;
}

async fn check<const N: usize>(statements: [(&str, &str, Expect); N]) {
    let fixture = Fixture::new().await;
    let mut tampering = Tampering::with(&fixture).await;
    for (name, text, expected) in statements {
        let steps = plan(&mut tampering, text).await;
        assert!(!steps.is_empty(), "{name}");
        assert!(steps.iter().all(|step| step.starts_with("SEARCH ")), "{name}: {steps:?}");
        expected.assert_eq(&steps.join("\n"));
    }
    tampering.close().await;
}
