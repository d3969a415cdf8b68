//! The difference of two texts for people: equal lines are cut to a few, other lines have `-` and `+`.

/// Equal lines around a difference.
const CONTEXT: usize = 2;
/// Lines of each side that are shown.
const LINES_MAX: usize = 60;

/// The lines in which `before` and `after` differ, with a few equal lines around. Empty if the texts are equal.
pub(super) fn diff(before: &str, after: &str) -> String {
    let (old, new): (Vec<&str>, Vec<&str>) = (before.lines().collect(), after.lines().collect());
    if old == new {
        return String::new();
    }
    let same = |(one, other): &(&&str, &&str)| one == other;
    let head = old.iter().zip(&new).take_while(same).count();
    let room = old.len().min(new.len()) - head;
    let tail = old.iter().rev().zip(new.iter().rev()).take_while(same).count().min(room);
    let mut text = String::new();
    lines(&mut text, ' ', &old[head.saturating_sub(CONTEXT)..head]);
    lines(&mut text, '-', &old[head..old.len() - tail]);
    lines(&mut text, '+', &new[head..new.len() - tail]);
    let rest = &new[new.len() - tail..];
    lines(&mut text, ' ', &rest[..rest.len().min(CONTEXT)]);
    text
}

fn lines(text: &mut String, mark: char, lines: &[&str]) {
    for line in lines.iter().take(LINES_MAX) {
        text.push(mark);
        text.push(' ');
        text.push_str(line);
        text.push('\n');
    }
    if let Some(more @ 1..) = lines.len().checked_sub(LINES_MAX) {
        text.push_str(&format!("{mark} … {more} more lines\n"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_differs_is_shown_with_a_little_around_it() {
        assert_eq!(diff("a\nb\n", "a\nb\n"), "");
        assert_eq!(diff("a\nb\nc\nd\ne\nf\n", "a\nb\nc\nX\nY\ne\nf\n"), "  b\n  c\n- d\n+ X\n+ Y\n  e\n  f\n");
        assert_eq!(diff("", "a\n"), "+ a\n");
        assert_eq!(diff("a\na\n", "a\n"), "  a\n- a\n");
    }
}
