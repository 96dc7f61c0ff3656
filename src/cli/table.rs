//! Text tables: columns padded with spaces and without lines, so that they can be cut and searched.

use comfy_table::{Table, presets};

/// A column: its heading, and the value of a row.
pub(super) type Column<T> = (&'static str, fn(&T) -> String);

/// A table with a header.
pub(super) fn of<T>(rows: &[T], columns: &[Column<T>]) -> String {
    let head: Vec<&str> = columns.iter().map(|(heading, _)| *heading).collect();
    let row = |row: &T| columns.iter().map(|(_, value)| value(row)).collect();
    self::columns(&head, &rows.iter().map(row).collect::<Vec<_>>())
}

/// A table with a header, whose columns depend on the rows.
pub(super) fn columns(head: &[&str], rows: &[Vec<String>]) -> String {
    let head = head.iter().map(|name| name.to_uppercase()).collect();
    padded(&[std::slice::from_ref(&head), rows].concat())
}

/// Names and values, one pair per line.
pub(super) fn pairs(pairs: &[(&str, String)]) -> String {
    padded(
        &pairs
            .iter()
            .map(|(name, value)| vec![(*name).to_owned(), value.clone()])
            .collect::<Vec<_>>(),
    )
}

fn padded(rows: &[Vec<String>]) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).add_rows(rows);
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
    }
    table.trim_fmt()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_stand_under_their_heads() {
        let rows = [
            vec!["1".into(), "first".into(), "x".into()],
            vec!["1000000".into(), String::new(), "y".into()],
        ];
        insta::assert_snapshot!(columns(&["task", "state", "body"], &rows), @r#"
        TASK     STATE  BODY
        1        first  x
        1000000         y
        "#);
        assert_eq!(columns(&["task", "state"], &[]), "TASK  STATE");
    }

    /// Cells to the right of a Chinese cell were shifted by one column per character.
    #[test]
    fn columns_align_by_the_width_of_their_characters() {
        let rows =
            [vec!["订单取消".into(), "x".into()], vec!["e\u{301}t\u{301}".into(), "y".into()]];
        let aligned = "REASON    N\n订单取消  x\ne\u{301}t\u{301}        y";
        assert_eq!(columns(&["reason", "n"], &rows), aligned);
    }

    #[test]
    fn pairs_stand_in_two_columns() {
        assert_eq!(pairs(&[("a", "1".into()), ("long", String::new())]), "a     1\nlong");
    }
}
