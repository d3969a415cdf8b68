//! The codes that states and kinds have in columns, and the words that statements say instead of them.
//!
//! [`sql!`] writes `state = {ready}` as `state = 1` when the program is compiled. A word that is not in the table does
//! not compile.

use crate::model::lane::LaneKind;
use crate::model::message::MessageState;
use crate::model::queue::QueueClass;
use crate::model::work_item::{WorkState, WorkType};

/// Defines for each type its code, the way back, and the word that stands for the code in statements.
macro_rules! codes {
    ($($type:ident, $code:ident, $of_code:ident { $($variant:ident, $word:literal = $number:literal;)+ })+) => {
        $(
            pub(in crate::store) const fn $code(value: $type) -> i64 {
                match value {
                    $($type::$variant => $number,)+
                }
            }

            pub(in crate::store) const fn $of_code(code: i64) -> Option<$type> {
                match code {
                    $($number => Some($type::$variant),)+
                    _ => None,
                }
            }
        )+

        const CODES: &[(&str, &str)] = &[$($(($word, stringify!($number)),)+)+];
    };
}

codes! {
    WorkState, work_state_code, work_state {
        Blocked, "blocked" = 0;
        Ready, "ready" = 1;
        Delayed, "delayed" = 2;
        Processing, "processing" = 3;
        Done, "done" = 4;
        Dead, "dead" = 5;
    }
    WorkType, work_type_code, work_type {
        ConnectorEvent, "connector_event" = 1;
        WorkflowActionApply, "workflow_action_apply" = 2;
    }
    QueueClass, queue_class_code, queue_class {
        Interactive, "interactive" = 0;
        Default, "default" = 1;
        Bulk, "bulk" = 2;
    }
    LaneKind, lane_kind_code, lane_kind {
        Source, "source_lane" = 1;
        Delivery, "delivery_lane" = 2;
        Projection, "projection_lane" = 3;
    }
    MessageState, message_state_code, message_state {
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

/// Words for several codes, as a list. Partial indexes are found by these very texts.
const LISTS: &[(&str, &str)] = &[
    // The states in which a WorkItem is claimed, now or later.
    ("claimable", "1, 2, 3"),
    ("any_work_type", "1, 2"),
    ("any_class", "0, 1, 2"),
    // The states of a message that an operator has to look at.
    ("message_troubled", "3, 7"),
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
    let tables = [CODES, LISTS];
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

    fn listed(codes: impl IntoIterator<Item = i64>) -> String {
        codes.into_iter().map(|code| code.to_string()).collect::<Vec<_>>().join(", ")
    }

    #[test]
    fn codes_read_back() {
        for state in WorkState::ALL {
            assert_eq!(work_state(work_state_code(state)), Some(state));
        }
        for class in QueueClass::ALL {
            assert_eq!(queue_class(queue_class_code(class)), Some(class));
        }
        for state in MessageState::ALL {
            assert_eq!(message_state(message_state_code(state)), Some(state));
        }
        assert_eq!((work_state(6), queue_class(3), message_state(9)), (None, None, None));
        assert_eq!((work_type(0), work_type(3), lane_kind(0), lane_kind(4)), (None, None, None, None));
    }

    #[test]
    fn a_statement_says_words_and_the_database_reads_codes() {
        assert_eq!(sql!("state = {ready} AND x < {message_handed_off}"), "state = 1 AND x < 8");
        assert_eq!(sql!("no words"), "no words");
        let states = [WorkState::Ready, WorkState::Delayed, WorkState::Processing];
        assert_eq!(sql!("{claimable}"), listed(states.map(work_state_code)));
        let types = [WorkType::ConnectorEvent, WorkType::WorkflowActionApply];
        assert_eq!(sql!("{any_work_type}"), listed(types.map(work_type_code)));
        assert_eq!(sql!("{any_class}"), listed(QueueClass::ALL.map(queue_class_code)));
        let troubled = [MessageState::Uncertain, MessageState::Dead];
        assert_eq!(sql!("{message_troubled}"), listed(troubled.map(message_state_code)));
    }

    #[test]
    fn no_two_codes_have_the_same_word() {
        let mut words: Vec<&str> = CODES.iter().chain(LISTS).map(|(word, _)| *word).collect();
        words.sort_unstable();
        assert!(words.windows(2).all(|pair| pair[0] != pair[1]), "{words:?}");
    }
}
