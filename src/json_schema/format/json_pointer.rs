//! JSON pointers (RFC 6901), and relative ones as draft 7 defines them.

use super::Scanner;

/// A scanner of JSON pointers.
#[derive(Clone, Debug, Default)]
pub(super) struct JsonPointerScanner {
    is_started: bool,
    is_escaped: bool,
}

impl Scanner for JsonPointerScanner {
    fn read(&mut self, character: char) -> bool {
        if !self.is_started {
            self.is_started = true;
            return character == '/';
        }
        if self.is_escaped {
            self.is_escaped = false;
            return matches!(character, '0' | '1');
        }
        self.is_escaped = character == '~';
        true
    }

    fn is_complete(&self) -> bool {
        !self.is_escaped
    }
}

/// A scanner of relative JSON pointers: how many levels up, then `#` or a JSON pointer.
#[derive(Clone, Debug, Default)]
pub(super) enum RelativeJsonPointerScanner {
    #[default]
    Start,
    Zero,
    Digits,
    Name,
    Pointer(JsonPointerScanner),
}

impl Scanner for RelativeJsonPointerScanner {
    fn read(&mut self, character: char) -> bool {
        *self = match (&mut *self, character) {
            (Self::Start, '0') => Self::Zero,
            (Self::Start, '1'..='9') | (Self::Digits, '0'..='9') => Self::Digits,
            (Self::Zero | Self::Digits, '#') => Self::Name,
            (Self::Zero | Self::Digits, _) => {
                let mut pointer = JsonPointerScanner::default();
                let can_continue = pointer.read(character);
                *self = Self::Pointer(pointer);
                return can_continue;
            }
            (Self::Pointer(pointer), _) => return pointer.read(character),
            (Self::Start | Self::Name, _) => return false,
        };
        true
    }

    fn is_complete(&self) -> bool {
        match self {
            Self::Start => false,
            Self::Zero | Self::Digits | Self::Name => true,
            Self::Pointer(pointer) => pointer.is_complete(),
        }
    }
}
