//! Small parts that pages share: figures in words, tables that scroll, tags.

use maud::{Markup, html};

use crate::out::escaped;
use crate::report::document::Mood;

/// A number with a thin space between groups of three digits, from five digits on.
#[must_use]
pub fn number(value: u64) -> String {
    let digits = value.to_string();
    if digits.len() < 5 {
        return digits;
    }
    let mut text = String::with_capacity(digits.len() * 2);
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push('\u{202f}');
        }
        text.push(digit);
    }
    text
}

/// A number and its noun: `1 matrix`, `9 matrices`.
#[must_use]
pub fn counted(value: u64, one: &str, many: &str) -> String {
    format!("{} {}", number(value), if value == 1 { one } else { many })
}

/// A time in the unit that suits it: `12.3 µs`, `4.56 ms`, `7.89 s`, `3 min 20 s`.
#[must_use]
pub fn micros(micros: f64) -> String {
    match micros {
        us if us >= 120e6 => {
            let whole = (us / 1e6).round();
            format!("{} min {} s", (whole / 60.0).floor(), whole % 60.0)
        }
        us if us >= 999_500.0 => format!("{} s", digits(us / 1e6)),
        us if us >= 999.5 => format!("{} ms", digits(us / 1e3)),
        us => format!("{} µs", digits(us)),
    }
}

/// The same for whole microseconds.
#[must_use]
pub fn seconds(elapsed_us: u64) -> String {
    micros(elapsed_us as f64)
}

/// Three digits that count.
#[must_use]
pub fn digits(value: f64) -> String {
    match value {
        v if v >= 99.95 => format!("{v:.0}"),
        v if v >= 9.995 => format!("{v:.1}"),
        v if v >= 0.9995 => format!("{v:.2}"),
        v if v <= 0.0 => "0".to_owned(),
        v if v >= 0.0995 => format!("{v:.3}"),
        v if v >= 0.00995 => format!("{v:.4}"),
        v if v >= 0.000_995 => format!("{v:.5}"),
        v => format!("{v:.2e}"),
    }
}

/// A number of bytes in the largest unit that divides it: `64 KiB`.
#[must_use]
pub fn size(bytes: u64) -> String {
    const UNITS: [(u64, &str); 3] = [(1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
    UNITS
        .into_iter()
        .find(|(unit, _)| bytes >= *unit && bytes.is_multiple_of(*unit))
        .map_or_else(
            || format!("{bytes} B"),
            |(unit, name)| format!("{} {name}", bytes / unit),
        )
}

/// A figure with three digits that count, without an exponent.
#[must_use]
pub fn short(figure: f64) -> String {
    match figure {
        _ if figure >= 100.0 => format!("{figure:.0}"),
        _ if figure >= 10.0 => format!("{figure:.1}"),
        _ if figure >= 1.0 => format!("{figure:.2}"),
        _ => format!("{figure:.3}"),
    }
}

/// A cell of the row of facts.
#[must_use]
pub fn fact(name: &str, value: &str, more: &str) -> Markup {
    html! {
        div {
            dt { (escaped(name)) }
            dd { (escaped(value)) @if !more.is_empty() { " " small { (escaped(more)) } } }
        }
    }
}

/// A tag with a sign, so that its colour is not needed.
#[must_use]
pub fn tag(mood: Mood, text: &str) -> Markup {
    html! {
        span class=(format!("tag {}", mood.class())) {
            span aria-hidden="true" { (mood.sign()) }
            (escaped(text))
        }
    }
}

/// Something wide that scrolls by itself, also by keyboard.
#[must_use]
pub fn scrolling(name: &str, inside: Markup) -> Markup {
    html! {
        div.scroll tabindex="0" role="region" aria-label=(escaped(name)) { (inside) }
    }
}

/// The same below a line that says what it shows. The line does not scroll away with it.
#[must_use]
pub fn captioned(caption: &str, inside: Markup) -> Markup {
    html! {
        p.caption { (escaped(caption)) }
        (scrolling(caption, inside))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_read_well() {
        assert_eq!(number(0), "0");
        assert_eq!(number(9999), "9999");
        assert_eq!(number(28856), "28\u{202f}856");
        assert_eq!(number(1_234_567), "1\u{202f}234\u{202f}567");
        assert_eq!(counted(1, "rank", "ranks"), "1 rank");
        for (time, text) in [
            (0.0, "0 µs"),
            (0.0123, "0.0123 µs"),
            (0.00012, "1.20e-4 µs"),
            (0.5, "0.500 µs"),
            (7.524, "7.52 µs"),
            (999.4, "999 µs"),
            (999.6, "1.00 ms"),
            (52_496_701.0, "52.5 s"),
            (200e6, "3 min 20 s"),
        ] {
            assert_eq!(micros(time), text);
        }
    }

    #[test]
    fn figures_and_sizes_are_short() {
        assert_eq!(size(8), "8 B");
        assert_eq!(size(65536), "64 KiB");
        assert_eq!(size(3 << 20), "3 MiB");
        assert_eq!(size(1025), "1025 B");
        for (figure, text) in [
            (0.1234, "0.123"),
            (1.234, "1.23"),
            (12.34, "12.3"),
            (1234.5, "1234"),
        ] {
            assert_eq!(short(figure), text);
        }
    }
}
