//! The user of the operating system who runs a command.

use std::fs;

/// Users, with their names and numbers.
const USERS_FILE: &str = "/etc/passwd";
/// The user who logged in, which stays when the user becomes another one (`sudo`); set where the system keeps it.
const LOGIN_USER_FILE: &str = "/proc/self/loginuid";
/// What the kernel says where no user logged in.
const NO_LOGIN_USER: u32 = u32::MAX;

/// Returns the actor of a command: `os:` and the name of the user who logged in or, where the system does not know, of the
/// user whom the process runs as. A user without a name has a number.
pub fn os_user_actor() -> String {
    let login = fs::read_to_string(LOGIN_USER_FILE).ok().and_then(|text| text.trim().parse::<u32>().ok());
    let id = login.filter(|id| *id != NO_LOGIN_USER).unwrap_or_else(|| rustix::process::geteuid().as_raw());
    let users = fs::read_to_string(USERS_FILE).unwrap_or_default();
    format!("os:{}", user_name(&users, id).map_or_else(|| id.to_string(), str::to_owned))
}

/// Returns the name of a user in the text of a users file.
fn user_name(users: &str, id: u32) -> Option<&str> {
    users.lines().find_map(|line| {
        let mut fields = line.split(':');
        let (name, number) = (fields.next()?, fields.nth(1)?);
        (number.parse() == Ok(id) && !name.is_empty()).then_some(name)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r8_a_user_has_its_name_and_one_without_a_name_its_number() {
        let users = "root:x:0:0:root:/root:/bin/sh\nbroken\nalice:x:1000:1000::/home/alice:/bin/sh\n";
        assert_eq!(user_name(users, 1000), Some("alice"));
        assert_eq!(user_name(users, 0), Some("root"));
        assert_eq!(user_name(users, 1001), None);
        assert!(os_user_actor().starts_with("os:"), "{}", os_user_actor());
    }
}
