//! What makes a fleet: tables, roles, and what each role may do.

use super::{TABLES, VERSION};
use crate::fleet::FleetError;
use crate::inventory::{Beside, DatabaseError, Desk, SENSORS, schema_of_server, values};

/// A group that roles are members of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Group {
    /// Sends what it sees.
    Sensor,
    /// Scans, and merges what sensors send.
    Worker,
    /// Reads.
    Reader,
    /// Gives orders, too.
    Admin,
    /// Publishes rules.
    Publisher,
}

impl Group {
    const ALL: [Self; 5] = [Self::Sensor, Self::Worker, Self::Reader, Self::Admin, Self::Publisher];

    /// The name of its role.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sensor => SENSORS,
            Self::Worker => "bannerwall_worker",
            Self::Reader => "bannerwall_reader",
            Self::Admin => "bannerwall_admin",
            Self::Publisher => "bannerwall_publisher",
        }
    }

    /// What makes its members do what they may. Sensors enter batches and read nothing but rules.
    fn rights(self) -> String {
        let writers = || include_str!("../rights/writers.sql").replace("{group}", self.name());
        match self {
            Self::Sensor => include_str!("../rights/sensor.sql").to_owned(),
            Self::Worker => writers() + include_str!("../rights/worker.sql"),
            Self::Reader => include_str!("../rights/reader.sql").to_owned(),
            Self::Admin => writers() + include_str!("../rights/admin.sql"),
            Self::Publisher => include_str!("../rights/publisher.sql").to_owned(),
        }
    }

    /// The flag that names its members, as the role is called but for what all begin with.
    fn flag(self) -> &'static str {
        self.name().strip_prefix("bannerwall_").unwrap_or(self.name())
    }
}

/// A role that is to be there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// Its name.
    pub name: String,
    /// Its group.
    pub group: Group,
}

/// Whether a name may be that of a role.
///
/// # Errors
/// Why not.
pub fn check_name(name: &str) -> Result<(), &'static str> {
    if name.is_empty() || name.len() > 63 || name.chars().any(char::is_control) {
        return Err("a role's name has 1 to 63 octets, and no control characters");
    }
    if name.starts_with("pg_") || Group::ALL.iter().any(|group| group.name() == name) {
        return Err(
            "that name is taken: those of PostgreSQL begin with pg_, those of the fleet's groups with bannerwall_",
        );
    }
    Ok(())
}

/// Everything that makes a fleet in an empty database, as `fleet init` does.
pub fn script(members: &[Member]) -> String {
    let tables: String = TABLES.concat();
    format!("BEGIN;\n{}\n{tables}\n{}COMMIT;\n", schema_of_server(), roles(members))
}

/// What makes the roles, or leaves those as they are that are there.
fn roles(members: &[Member]) -> String {
    let mut text = String::new();
    let groups = Group::ALL.map(|group| role(group.name(), "NOLOGIN"));
    groups.iter().for_each(|group| text.push_str(group));
    Group::ALL.iter().for_each(|group| text.push_str(&group.rights()));
    for Member { name, group } in members {
        text.push_str(&role(name, "LOGIN"));
        text.push_str(&format!("GRANT {} TO {};\n", group.name(), quoted(name)));
        if *group == Group::Sensor {
            let name = literal(name);
            text.push_str(&format!(
                "INSERT INTO bannerwall.fleet_sensors (sensor) VALUES ({name}) ON CONFLICT DO NOTHING;\n"
            ));
        }
    }
    text
}

/// Makes a role, without a password: whoever has made it gives one by `\password`.
fn role(name: &str, how: &str) -> String {
    let (quoted, literal) = (quoted(name), literal(name));
    format!(
        "DO $bannerwall$ BEGIN\n  IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = {literal}) THEN\n    \
         CREATE ROLE {quoted} {how};\n  END IF;\nEND $bannerwall$;\n"
    )
}

fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

fn literal(name: &str) -> String {
    // As PostgreSQL reads it whatever `standard_conforming_strings` says.
    format!("E'{}'", name.replace('\\', "\\\\").replace('\'', "''"))
}

/// Makes the roles of a fleet whose tables are there.
pub(super) fn make(beside: &Beside, members: &[Member]) -> Result<(), DatabaseError> {
    beside.together(|desk| desk.batch(&roles(members)))
}

/// Lets groups do what is new in the tables: those that could come to this database before, as groups are the whole server's.
pub(super) fn grant(desk: Desk<'_>) -> Result<(), DatabaseError> {
    let comes = "SELECT has_schema_privilege(oid, 'bannerwall', 'USAGE') FROM pg_roles WHERE rolname = ?1";
    for group in Group::ALL {
        if desk.one(comes, values![group.name()], |row| row.get(0))? == Some(true) {
            desk.batch(&group.rights())?;
        }
    }
    Ok(())
}

/// Groups and their members.
const MEMBERS: &str = "SELECT g.rolname::text FROM pg_auth_members m JOIN pg_roles g ON g.oid = m.roleid
     JOIN pg_roles r ON r.oid = m.member";

/// Looks which roles are there, and whether they may become what they are to be; what there is to make.
pub(super) fn look(beside: &Beside, members: &[Member]) -> Result<Vec<String>, FleetError> {
    let desk = beside.desk();
    let is_there = |name: &str| {
        let there = "SELECT rolsuper OR rolbypassrls FROM pg_roles WHERE rolname = ?1";
        desk.one(there, values![name], |row| row.get::<bool>(0))
    };
    let other_group = |name: &str, group: Group| {
        let query = format!(
            "{MEMBERS} WHERE r.rolname = ?1 AND g.rolname LIKE 'bannerwall\\_%' AND g.rolname <> ?2 LIMIT 1"
        );
        desk.one(&query, values![name, group.name()], |row| row.get::<String>(0))
    };
    let is_sensor = |name: &str| {
        let query = format!("{MEMBERS} WHERE r.rolname = ?1 AND g.rolname = ?2");
        desk.one(&query, values![name, SENSORS], |_| Ok(())).map(|found| found.is_some())
    };
    let fault = |error: DatabaseError| FleetError::Store(beside.fault(error));
    let mut told = Vec::new();
    let groups = Group::ALL.map(|group| (group.name(), group));
    let named = members.iter().map(|member| (member.name.as_str(), member.group));
    for (name, group) in groups.into_iter().chain(named) {
        let found = is_there(name).map_err(fault)?;
        let is_group = name == group.name();
        if group == Group::Sensor && !is_group {
            if found == Some(true) {
                return Err(FleetError::Mighty(name.to_owned()));
            }
            if let Some(other) = other_group(name, group).map_err(fault)? {
                return Err(FleetError::Reads(name.to_owned(), other));
            }
        }
        if group != Group::Sensor && !is_group && is_sensor(name).map_err(fault)? {
            return Err(FleetError::IsSensor(name.to_owned(), group.flag()));
        }
        told.push(match (found, is_group) {
            (Some(_), true) => format!("role {name}: was there"),
            (None, true) => format!("role {name}: made"),
            (Some(_), false) => format!("role {name}: was there, member of {}", group.name()),
            (None, false) => format!(
                "role {name}: made, member of {}, without a password: in psql, \\password {}",
                group.name(),
                quoted(name)
            ),
        });
    }
    told.insert(0, format!("tables of the fleet: version {VERSION}"));
    Ok(told)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_written_so_that_they_stay_names() {
        assert_eq!(quoted("a\"; DROP ROLE b; --"), "\"a\"\"; DROP ROLE b; --\"");
        assert_eq!(literal("a'\\b"), "E'a''\\\\b'");
        for name in ["", "pg_x", "bannerwall_admin", "a\nb", &"x".repeat(64)] {
            assert!(check_name(name).is_err(), "{name}");
        }
        assert!(check_name("gw-1.example").is_ok());
    }
}
