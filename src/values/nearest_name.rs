//! The name that is nearest to a misspelt one.

/// Maximum number of letters of a name that is compared.
const MAX_LETTERS: usize = 300;

/// Returns the name that differs least from `text`, if a third of the letters differ at most.
pub fn nearest_name<'a>(text: &str, names: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let letters: Vec<char> = text.to_lowercase().chars().take(MAX_LETTERS).collect();
    let max_distance = letters.len().div_ceil(3);
    let distance_to = |name: &'a str| {
        let lowercase = name.to_lowercase();
        let is_comparable = lowercase.len() <= 4 * MAX_LETTERS;
        let distance = is_comparable.then(|| edit_distance(&letters, &lowercase, max_distance)).flatten()?;
        Some((distance, name))
    };
    names.into_iter().filter_map(distance_to).min().map(|(_, name)| name)
}

/// Returns the edit distance to `other` (with swaps of neighbours); `None` if it exceeds `max_distance`.
pub fn edit_distance(letters: &[char], other: &str, max_distance: usize) -> Option<usize> {
    if max_distance == 0
        || other.len() + max_distance < letters.len()
        || other.len() > 4 * (letters.len() + max_distance)
    {
        return None;
    }
    let other: Vec<char> = other.chars().collect();
    if other.len().abs_diff(letters.len()) > max_distance {
        return None;
    }
    // Rows of the Damerau-Levenshtein table: two before, one before, the current one.
    let mut oldest = vec![usize::MAX; other.len() + 1];
    let mut older: Vec<usize> = (0..=other.len()).collect();
    let mut previous_letter = None;
    for (row_number, letter) in letters.iter().enumerate() {
        let mut row = Vec::with_capacity(other.len() + 1);
        row.push(row_number + 1);
        let (mut left, mut min_cost) = (row_number + 1, row_number + 1);
        let mut previous_other = None;
        for (column, other_letter) in other.iter().enumerate() {
            let cell = |row: &[usize], at: usize| row.get(at).copied().unwrap_or(usize::MAX);
            let mut cost = (cell(&older, column) + usize::from(letter != other_letter)).min(left + 1);
            cost = cost.min(cell(&older, column + 1) + 1);
            if previous_other == Some(letter) && previous_letter == Some(other_letter) {
                cost = cost.min(cell(&oldest, column - 1) + 1);
            }
            row.push(cost);
            (left, min_cost, previous_other) = (cost, min_cost.min(cost), Some(other_letter));
        }
        if min_cost > max_distance {
            return None;
        }
        (oldest, older, previous_letter) = (older, row, Some(letter));
    }
    older.last().copied().filter(|cost| *cost <= max_distance)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_name_differs_in_a_third_of_its_letters_at_most() {
        let names = ["https://login.example.com/", "https://idp.example.org"];
        for (text, nearest) in [
            ("https://login.example.com", Some(names[0])),
            ("HTTPS://login.exmaple.com/", Some(names[0])),
            ("https://ipd.example.org/", Some(names[1])),
            ("accounts", None),
            ("", None),
        ] {
            assert_eq!(nearest_name(text, names), nearest, "{text}");
        }
        assert_eq!(nearest_name(&"a".repeat(100_000), names), None);
    }
}
