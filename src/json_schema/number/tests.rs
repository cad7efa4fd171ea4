//! Tests of numbers, against a slow big integer.

use super::*;
use proptest::prelude::*;

/// A number as an integer in units of 10^-`places`, digit by digit.
#[derive(Clone, Debug, PartialEq, Eq)]
struct BigInteger {
    is_negative: bool,
    /// The highest digit first, without zeros at the beginning.
    digits: Vec<u8>,
}

impl BigInteger {
    fn new(text: &str, places: i64) -> Self {
        let (mantissa, exponent) = match text.split_once(['e', 'E']) {
            Some((mantissa, exponent)) => (mantissa, exponent.trim_start_matches('+').parse::<i64>().unwrap()),
            None => (text, 0),
        };
        let unsigned = mantissa.trim_start_matches('-');
        let (integer, fraction) = unsigned.split_once('.').unwrap_or((unsigned, ""));
        let mut digits: Vec<u8> = (integer.to_owned() + fraction).bytes().map(|byte| byte - b'0').collect();
        let zeros = places + exponent - fraction.len() as i64;
        assert!(zeros >= 0, "{text}: not enough places");
        digits.extend(std::iter::repeat_n(0, zeros as usize));
        let first = digits.iter().position(|digit| *digit != 0).unwrap_or(digits.len());
        digits.drain(..first);
        Self { is_negative: mantissa.starts_with('-') && !digits.is_empty(), digits }
    }

    fn compare(&self, other: &Self) -> Ordering {
        let size = |one: &Self, other: &Self| {
            one.digits.len().cmp(&other.digits.len()).then_with(|| one.digits.cmp(&other.digits))
        };
        match (self.is_negative, other.is_negative) {
            (false, false) => size(self, other),
            (true, true) => size(other, self),
            (false, true) => Ordering::Greater,
            (true, false) => Ordering::Less,
        }
    }

    /// Long division: the remainder is kept as digits, and the divisor subtracted as often as it goes.
    fn is_multiple_of(&self, divisor: &Self) -> bool {
        let mut remainder: Vec<u8> = Vec::new();
        for digit in &self.digits {
            if !(remainder.is_empty() && *digit == 0) {
                remainder.push(*digit);
            }
            while remainder.len().cmp(&divisor.digits.len()).then_with(|| remainder.cmp(&divisor.digits)).is_ge() {
                let mut borrow = 0;
                for at in 0..remainder.len() {
                    let from_end = remainder.len() - 1 - at;
                    let subtrahend = divisor.digits.iter().rev().nth(at).copied().unwrap_or(0) + borrow;
                    borrow = u8::from(remainder[from_end] < subtrahend);
                    remainder[from_end] = remainder[from_end] + 10 * borrow - subtrahend;
                }
                let first = remainder.iter().position(|digit| *digit != 0).unwrap_or(remainder.len());
                remainder.drain(..first);
            }
        }
        remainder.is_empty()
    }
}

/// Places that are sufficient for the numbers of [`number_text`].
const PLACES: i64 = 80;

fn number_text() -> impl Strategy<Value = String> {
    let short = "-?(0|[1-9][0-9]{0,3})(\\.[0-9]{1,4})?([eE][+-]?[0-9])?";
    let long = "-?(0|[1-9]0{0,20}[0-9]{0,25})(\\.0{0,5}[0-9]{1,20}0{0,5})?([eE][+-]?0?[1-4]?[0-9])?";
    prop_oneof![short, long, any::<i64>().prop_map(|integer| integer.to_string())]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn numbers_compare_as_big_integers_do(first in number_text(), second in number_text()) {
        let (big_first, big_second) = (BigInteger::new(&first, PLACES), BigInteger::new(&second, PLACES));
        let expected = big_first.compare(&big_second);
        prop_assert_eq!(compare(&first, &second), expected, "{} {}", first, second);
        prop_assert_eq!(Bound::from_text(&second).compare_text(&first), expected, "{} {}", first, second);
        prop_assert_eq!(compare(&first, &first), Ordering::Equal);
        let is_integer = big_first.is_multiple_of(&BigInteger::new("1", PLACES));
        prop_assert_eq!(super::is_integer(&first), is_integer, "{}", first);
    }

    #[test]
    fn multiples_are_those_of_big_integers(
        number in number_text(),
        divisor in "(0|[1-9][0-9]{0,8})(\\.[0-9]{1,8})?([eE][+-]?[0-9]{1,2})?",
        factor in 1_u32..1000,
    ) {
        let Ok(value) = divisor.parse::<f64>() else { return Ok(()) };
        if value == 0.0 || BigInteger::new(&divisor, 200).digits.is_empty() {
            prop_assert!(Divisor::from_text(&divisor).is_none());
            return Ok(());
        }
        let compiled = Divisor::from_text(&divisor).unwrap();
        let big_divisor = BigInteger::new(&divisor, 200);
        let expected = BigInteger::new(&number, 200).is_multiple_of(&big_divisor);
        prop_assert_eq!(compiled.divides(&number), expected, "{} {}", number, divisor);
        // A number that is a multiple by its making.
        let (mantissa, exponent) = divisor.split_once(['e', 'E']).unwrap_or((&divisor, "0"));
        let places = mantissa.split_once('.').map_or(0, |(_, fraction)| fraction.len());
        let integer: u128 = mantissa.replace('.', "").parse().unwrap();
        let exponent: i64 = exponent.trim_start_matches('+').parse().unwrap();
        let multiple = format!("-{}e{}", integer * u128::from(factor), exponent - places as i64);
        prop_assert!(compiled.divides(&multiple), "{} {}", multiple, divisor);
    }

    #[test]
    fn any_text_is_read_without_a_panic(text in "[-+.eE0-9a]{0,30}", other in ".{0,10}") {
        for text in [&text, &other] {
            let _ = (compare(text, "1"), is_integer(text));
            let _ = Decimal::parse(text).to_i64();
        }
    }
}

#[test]
fn numbers_compare_by_value() {
    let groups = [
        &["-1e400"][..],
        &["-18446744073709551616"],
        &["-9223372036854775809"],
        &["-9223372036854775808", "-9.223372036854775808e18"],
        &["-10", "-1e1", "-10.000", "-0.1e2", "-1000e-2"],
        &["-1.5", "-15e-1"],
        &["-1e-400"],
        &["0", "-0", "0.0", "-0.00", "0e5", "-0e-99", "0.000e999999999999999999999"],
        &["1e-99999999999999999999999"],
        &["1e-400", "0.1e-399"],
        &["0.30000000000000001"],
        &["0.3000000000000000100000001", "3000000000000000100000001e-25"],
        &["1", "1.0", "10e-1", "0.1e1", "1e0", "1E+0", "0.00001e5", "100000e-5"],
        &["9.99"],
        &["10", "1e1", "10.0", "0.010e3"],
        &["9007199254740992"],
        &["9007199254740993"],
        &["9223372036854775807"],
        &["9223372036854775808", "9223372036854775.808e3"],
        &["18446744073709551615"],
        &["18446744073709551616"],
        &["1e400"],
        &["1.0000001e400"],
        &["1e99999999999999999999999"],
    ];
    for (index, group) in groups.iter().enumerate() {
        for (other_index, other_group) in groups.iter().enumerate() {
            for text in *group {
                for other in *other_group {
                    assert_eq!(compare(text, other), index.cmp(&other_index), "{text} {other}");
                    assert_eq!(Bound::from_text(other).compare_text(text), index.cmp(&other_index), "{text} {other}");
                }
            }
        }
    }
}

#[test]
fn integers_are_recognised_by_value() {
    for text in
        ["0", "-0", "0.0", "1", "1.0", "-1.000", "1e3", "1.5e1", "1E400", "120e-1", "0e-5", "1e9999999999999999999"]
    {
        assert!(is_integer(text), "{text}");
    }
    for text in ["0.5", "1.0000000000000000000000000001", "1e-1", "15e-2", "1.23e1", "1e-9999999999999999999", "-0.1"] {
        assert!(!is_integer(text), "{text}");
    }
}

#[test]
fn multiples_are_exact() {
    for (divisor, multiples, others) in [
        (
            "0.0001",
            &["0.0075", "0", "-0.0", "1", "1e300", "7.5e-3", "12391239123"][..],
            &["0.00751", "0.00001", "1e-5", "1e-400"][..],
        ),
        (
            "0.01",
            &["0.07", "19.99", "1.10", "4.35", "123456789012345678901234567890.12"],
            &["0.075", "0.001", "123456789012345678901234567890.123"],
        ),
        (
            "3",
            &["9", "-9", "9.0", "0.9e1", "3e400", "111111111111111111111111111"],
            &["10", "1e400", "1", "9.3", "0.3", "3e-1"],
        ),
        ("7", &["7e99", "49", "1001e50", "0"], &["1e9223372036854775807", "8", "1e99"]),
        ("1e3", &["1000", "1e3", "12000", "1e300"], &["100", "1500", "1", "999.9"]),
        ("1e-8", &["12391239123", "0.00000001", "1e-8"], &["1e-9", "0.000000015"]),
        (
            "18446744073709551615",
            &["18446744073709551615", "36893488147419103230", "0"],
            &["18446744073709551616", "1", "1e100"],
        ),
        ("2.5", &["5", "7.5", "1e1", "-2.5"], &["6", "0.5", "2.55"]),
        ("0.3", &["0.9", "3", "0.6", "1.2"], &["1", "0.4", "0.95"]),
        ("1e308", &["1e308", "3e308", "0"], &["1e307", "123"]),
    ] {
        let compiled = Divisor::from_text(divisor).unwrap();
        for multiple in multiples {
            assert!(compiled.divides(multiple), "{multiple} {divisor}");
        }
        for other in others {
            assert!(!compiled.divides(other), "{other} {divisor}");
        }
    }
    for text in ["0", "0.0", "-0e5", "18446744073709551616", "1.00000000000000000000000001"] {
        assert_eq!(Divisor::from_text(text), None, "{text}");
    }
}

#[test]
fn the_numbers_of_a_schema_are_read_as_they_are_written() {
    for (text, equal, less) in [
        ("0.1", "0.1", "0.09999999999999999"),
        ("1e300", "1000e297", "9.99e299"),
        ("1e-7", "0.0000001", "0.00000009"),
        ("1.7976931348623157e308", "1.7976931348623157e308", "1.7976931348623156e308"),
        ("5e-324", "5e-324", "4e-324"),
        ("-0.0", "0", "-1e-400"),
        ("18446744073709551615", "18446744073709551615", "18446744073709551614"),
        ("100.0", "1e2", "99.9"),
    ] {
        let bound = Bound::new(&serde_json::from_str::<Number>(text).unwrap());
        assert_eq!(bound.compare_text(equal), Ordering::Equal, "{text}");
        assert_eq!(bound.compare_text(less), Ordering::Less, "{text}");
        assert_eq!(Bound::from_text(less).compare_text(text), Ordering::Greater, "{text}");
    }
    assert!(Divisor::new(&serde_json::from_str("0.01").unwrap()).unwrap().divides("19.99"));
}

#[test]
fn long_numbers_take_linear_time() {
    let long = "1".repeat(1_000_000);
    for text in [
        long.clone(),
        format!("0.{}{long}", "0".repeat(1_000_000)),
        format!("{long}{}", "0".repeat(1_000_000)),
        format!("{long}e-{}5", "0".repeat(1_000_000)),
        format!("1e{long}"),
        format!("1e-{long}"),
    ] {
        let _ = (compare(&text, "1"), compare(&text, &text), is_integer(&text));
        assert!(Divisor::from_text("7").unwrap().divides("7e300"));
        let _ = Divisor::from_text("18446744073709551615").unwrap().divides(&text);
    }
    assert_eq!(compare(&format!("{long}1"), &format!("{long}2")), Ordering::Less);
    assert!(cost(&long) > 200_000);
}
