//! The codes of states and kinds in columns, and the words for them in statements.
//!
//! [`sql!`] writes `state = {ready}` as `state = 1` when the program is compiled. A word that is not in the tables does
//! not compile.

use super::row::{Column, damaged};
use super::values::Value;
use crate::model::lane::LaneKind;
use crate::model::message::MessageState;
use crate::model::queue::QueueClass;
use crate::model::work_item::{WorkState, WorkType};

/// A type with a code for each of its values.
pub(in crate::store) trait Coded {
    /// The code of a value.
    fn code(self) -> i64;
}

/// Defines for each type how it is written and read, and the words that stand for its codes in statements.
macro_rules! codes {
    ($($type:ident, $noun:literal { $($variant:ident, $word:literal = $number:literal;)+ })+) => {
        $(
            impl Coded for $type {
                fn code(self) -> i64 {
                    match self {
                        $($type::$variant => $number,)+
                    }
                }
            }

            impl From<$type> for Value {
                fn from(value: $type) -> Self {
                    Value::Integer(value.code())
                }
            }

            impl Column for $type {
                type Stored<'r> = i64;

                fn of_stored(code: i64) -> Result<Self, sqlx::Error> {
                    match code {
                        $($number => Ok($type::$variant),)+
                        _ => Err(damaged($noun, code)),
                    }
                }
            }
        )+

        const CODES: &[(&str, &str)] = &[$($(($word, stringify!($number)),)+)+];
    };
}

codes! {
    WorkState, "work item state" {
        Blocked, "blocked" = 0;
        Ready, "ready" = 1;
        Delayed, "delayed" = 2;
        Processing, "processing" = 3;
        Done, "done" = 4;
        Dead, "dead" = 5;
    }
    WorkType, "work type" {
        ConnectorEvent, "connector_event" = 1;
        WorkflowActionApply, "workflow_action_apply" = 2;
    }
    QueueClass, "queue class" {
        Interactive, "interactive" = 0;
        Default, "default" = 1;
        Bulk, "bulk" = 2;
    }
    LaneKind, "kind of lane" {
        Source, "source_lane" = 1;
        Delivery, "delivery_lane" = 2;
        Projection, "projection_lane" = 3;
    }
    MessageState, "message state" {
        Scheduled, "message_scheduled" = 0;
        Publishing, "message_publishing" = 1;
        RetryWait, "message_retry_wait" = 2;
        Uncertain, "message_uncertain" = 3;
        Published, "message_published" = 4;
        Cancelled, "message_cancelled" = 5;
        Expired, "message_expired" = 6;
        Dead, "message_dead" = 7;
        HandedOff, "message_handed_off" = 8;
    }
}

/// Words for longer texts. Partial indexes are found by these very texts.
const PHRASES: &[(&str, &str)] = &[
    // The states in which a WorkItem is claimed, now or later.
    ("claimable", "1, 2, 3"),
    ("any_work_type", "1, 2"),
    ("any_class", "0, 1, 2"),
    // The states of a message that an operator has to look at.
    ("message_troubled", "3, 7"),
    // The ordinals of an Event's WorkItems (`materialize`): of the one that its delivery brought, and of all types.
    ("delivered_item", "event.ordinal * 16 + 1"),
    ("items_of_event", "event.ordinal * 16 AND event.ordinal * 16 + 15"),
];

/// A statement with its words replaced by codes.
macro_rules! sql {
    ($written:expr $(,)?) => {{
        const WRITTEN: &str = $written;
        const BYTES: [u8; $crate::store::engine::codes::length(WRITTEN)] =
            $crate::store::engine::codes::with_codes(WRITTEN);
        const TEXT: &str = match std::str::from_utf8(&BYTES) {
            Ok(text) => text,
            Err(_) => panic!("a statement is UTF-8"),
        };
        TEXT
    }};
}
pub(in crate::store) use sql;

/// The bytes of a statement once its words are replaced.
pub(in crate::store) const fn length(written: &str) -> usize {
    let written = written.as_bytes();
    let (mut at, mut length) = (0, 0);
    while at < written.len() {
        if written[at] == b'{' {
            let end = end_of_word(written, at);
            length += code_of(written, at + 1, end).len();
            at = end + 1;
        } else {
            length += 1;
            at += 1;
        }
    }
    length
}

/// A statement with its words replaced; `N` is its [`length`].
pub(in crate::store) const fn with_codes<const N: usize>(written: &str) -> [u8; N] {
    let written = written.as_bytes();
    let mut text = [0; N];
    let (mut at, mut length) = (0, 0);
    while at < written.len() {
        if written[at] == b'{' {
            let end = end_of_word(written, at);
            let code = code_of(written, at + 1, end).as_bytes();
            let mut copied = 0;
            while copied < code.len() {
                text[length] = code[copied];
                length += 1;
                copied += 1;
            }
            at = end + 1;
        } else {
            text[length] = written[at];
            length += 1;
            at += 1;
        }
    }
    text
}

/// Where the word ends that begins with the brace at `at`.
const fn end_of_word(written: &[u8], at: usize) -> usize {
    let mut end = at;
    while written[end] != b'}' {
        end += 1;
        assert!(end < written.len(), "a word in a statement has no closing brace");
    }
    end
}

/// The code of the word from `start` to `end`.
const fn code_of(written: &[u8], start: usize, end: usize) -> &'static str {
    let tables = [CODES, PHRASES];
    let mut table = 0;
    while table < tables.len() {
        let mut row = 0;
        while row < tables[table].len() {
            let (word, code) = tables[table][row];
            if is_word(written, start, end, word.as_bytes()) {
                return code;
            }
            row += 1;
        }
        table += 1;
    }
    panic!("a statement says a word that is no code")
}

const fn is_word(written: &[u8], start: usize, end: usize, word: &[u8]) -> bool {
    if end - start != word.len() {
        return false;
    }
    let mut at = 0;
    while at < word.len() {
        if written[start + at] != word[at] {
            return false;
        }
        at += 1;
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed<T: Coded>(values: impl IntoIterator<Item = T>) -> String {
        values.into_iter().map(|value| value.code().to_string()).collect::<Vec<_>>().join(", ")
    }

    fn read<T: for<'r> Column<Stored<'r> = i64>>(code: i64) -> Option<T> {
        T::of_stored(code).ok()
    }

    #[test]
    fn codes_read_back() {
        for state in WorkState::ALL {
            assert_eq!(read(state.code()), Some(state));
        }
        for class in QueueClass::ALL {
            assert_eq!(read(class.code()), Some(class));
        }
        for state in MessageState::ALL {
            assert_eq!(read(state.code()), Some(state));
        }
        assert_eq!((read::<WorkState>(6), read::<QueueClass>(3), read::<MessageState>(9)), (None, None, None));
        assert_eq!((read::<WorkType>(0), read::<WorkType>(3)), (None, None));
        assert_eq!((read::<LaneKind>(0), read::<LaneKind>(4)), (None, None));
    }

    #[test]
    fn a_statement_says_words_and_the_database_reads_codes() {
        assert_eq!(sql!("state = {ready} AND x < {message_handed_off}"), "state = 1 AND x < 8");
        assert_eq!(sql!("no words"), "no words");
        assert_eq!(sql!("{claimable}"), listed([WorkState::Ready, WorkState::Delayed, WorkState::Processing]));
        assert_eq!(sql!("{any_work_type}"), listed([WorkType::ConnectorEvent, WorkType::WorkflowActionApply]));
        assert_eq!(sql!("{any_class}"), listed(QueueClass::ALL));
        assert_eq!(sql!("{message_troubled}"), listed([MessageState::Uncertain, MessageState::Dead]));
    }

    #[test]
    fn no_two_codes_have_the_same_word() {
        let mut words: Vec<&str> = CODES.iter().chain(PHRASES).map(|(word, _)| *word).collect();
        words.sort_unstable();
        assert!(words.windows(2).all(|pair| pair[0] != pair[1]), "{words:?}");
    }
}
