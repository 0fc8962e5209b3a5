//! The setup of a fleet: tables, roles, and the rights of each role.

use super::{TABLES, VERSION};
use crate::database::{DatabaseConnection, DatabaseError, QueryRow, values};
use crate::fleet::FleetError;
use crate::inventory::{TableClient, schema_of_server};

/// A group that roles are members of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RoleGroup {
    /// Sends sightings.
    Sensor,
    /// Scans, and merges batches of sensors.
    Worker,
    /// Reads.
    Reader,
    /// Also submits scans.
    Admin,
    /// Publishes rules.
    Publisher,
}

impl RoleGroup {
    pub(super) const ALL: [Self; 5] =
        [Self::Sensor, Self::Worker, Self::Reader, Self::Admin, Self::Publisher];

    /// The flag that names its members, and the end of its role's name.
    pub(super) const fn word(self) -> &'static str {
        match self {
            Self::Sensor => "sensor",
            Self::Worker => "worker",
            Self::Reader => "reader",
            Self::Admin => "admin",
            Self::Publisher => "publisher",
        }
    }

    /// The name of its role, as SQL that the database reads: roles are the whole server's, and a group is one
    /// database's.
    fn name(self) -> String {
        format!(
            "(SELECT 'bannerwall_' || CASE WHEN octet_length(datname::text) <= 40 THEN datname::text ELSE '#' || oid END \
             || '_{}' FROM pg_database WHERE datname = current_database())",
            self.word()
        )
    }

    /// Returns the statements that give a role, named in SQL, the rights of its group. Sensors insert batches
    /// and read only rules.
    pub(super) fn rights(self, name: &str) -> String {
        let writers = || include_str!("../rights/writers.sql").to_owned();
        let rights = match self {
            Self::Sensor => include_str!("../rights/sensor.sql").to_owned(),
            Self::Worker => writers() + include_str!("../rights/worker.sql"),
            Self::Reader => include_str!("../rights/reader.sql").to_owned(),
            Self::Admin => writers() + include_str!("../rights/admin.sql"),
            Self::Publisher => include_str!("../rights/publisher.sql").to_owned(),
        };
        format!(
            "DO $bannerwall$ BEGIN\n  EXECUTE replace(replace($sql${rights}$sql$, '{{group}}', quote_ident({name})), \
             '{{database}}', quote_ident(current_database()));\nEND $bannerwall$;\n"
        )
    }

    /// Returns the statements that limit a member: its connections and its temporary files.
    fn limits(self, name: &str) -> String {
        // A guard has three connections, and its successor as many while it takes over.
        let (connections, temporary) = match self {
            Self::Sensor | Self::Publisher => ("16", "64MB"),
            Self::Worker | Self::Reader | Self::Admin => {
                ("current_setting('max_connections')::int / 2", "2GB")
            }
        };
        let limits = include_str!("../rights/member.sql").replace("{connections}", connections);
        limits.replace("{temporary}", temporary).replace("{name}", &literal(name))
    }
}

/// A role to create.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FleetRole {
    /// Its name.
    pub name: String,
    /// Its group.
    pub group: RoleGroup,
}

/// Checks whether a name may be that of a role.
///
/// # Errors
/// It may not; the text says why.
pub fn check_name(name: &str) -> Result<(), &'static str> {
    if name.is_empty() || name.len() > 63 || name.chars().any(char::is_control) {
        return Err("a role's name must have 1 to 63 bytes, and no control characters");
    }
    if name.contains("$bannerwall$") {
        return Err("a role's name must not contain $bannerwall$, which this program's SQL uses as a quote");
    }
    if name.starts_with("pg_") || name.starts_with("bannerwall_") {
        return Err(
            "the name is reserved: pg_ is the prefix of PostgreSQL's roles, bannerwall_ that of the \
             fleet's groups",
        );
    }
    Ok(())
}

/// Returns the script that sets up a fleet in an empty database, as `fleet init` does.
pub fn script(members: &[FleetRole]) -> String {
    let tables: String = TABLES.concat();
    format!("BEGIN;\n{}\n{tables}\n{}COMMIT;\n", schema_of_server(), roles(members))
}

/// Returns the statements that create the roles, and leave existing ones as they are.
fn roles(members: &[FleetRole]) -> String {
    let mut text = String::new();
    for group in RoleGroup::ALL {
        text.push_str(&role(&group.name(), "NOLOGIN"));
    }
    for group in RoleGroup::ALL {
        text.push_str(&group.rights(&group.name()));
    }
    text.push_str(include_str!("../rights/database.sql"));
    for FleetRole { name, group } in members {
        text.push_str(&role(&literal(name), "LOGIN"));
        let (of, to) = (group.name(), literal(name));
        text.push_str(&format!(
            "DO $bannerwall$ BEGIN\n  EXECUTE format('GRANT %I TO %I', {of}, {to});\nEND $bannerwall$;\n"
        ));
        text.push_str(&group.limits(name));
        if *group == RoleGroup::Sensor {
            let name = literal(name);
            text.push_str(&format!(
                "INSERT INTO bannerwall.fleet_sensors (sensor) VALUES ({name}) ON CONFLICT DO NOTHING;\n"
            ));
        }
    }
    text
}

/// Returns the statement that creates a role without a password. The administrator sets one with `\password`.
fn role(name: &str, how: &str) -> String {
    format!(
        "DO $bannerwall$ BEGIN\n  IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = {name}) THEN\n    \
         EXECUTE format('CREATE ROLE %I {how}', {name});\n  END IF;\nEND $bannerwall$;\n"
    )
}

fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

pub(super) fn literal(name: &str) -> String {
    // PostgreSQL reads this form the same with every `standard_conforming_strings`.
    format!("E'{}'", name.replace('\\', "\\\\").replace('\'', "''"))
}

/// Creates the roles of a fleet whose tables exist.
pub(super) fn create_roles(beside: &TableClient, members: &[FleetRole]) -> Result<(), DatabaseError> {
    beside.in_transaction(|link| link.batch(&roles(members)))
}

/// Grants existing groups their rights on new tables.
pub(super) fn grant(link: &DatabaseConnection) -> Result<(), DatabaseError> {
    for group in RoleGroup::ALL {
        let there = format!("SELECT FROM pg_roles WHERE rolname = {}", group.name());
        if link.one(&there, &[], |_| Ok(()))?.is_some() {
            link.batch(&group.rights(&group.name()))?;
        }
    }
    Ok(())
}

/// Groups and their members.
const MEMBERS: &str = "SELECT g.rolname::text FROM pg_auth_members m JOIN pg_roles g ON g.oid = m.roleid
     JOIN pg_roles r ON r.oid = m.member";

/// Checks which roles exist and whether they may join their groups. Returns what has to be created.
pub(super) fn plan_roles(beside: &TableClient, members: &[FleetRole]) -> Result<Vec<String>, FleetError> {
    let link = beside.link();
    let is_there = |name: &str| {
        let there = "SELECT rolsuper OR rolbypassrls FROM pg_roles WHERE rolname = ?1";
        link.one(there, values![name], |row| row.get::<bool>(0))
    };
    let fault = |error: DatabaseError| FleetError::Store(beside.fault(error));
    let mut told = vec![format!("tables of the fleet: version {VERSION}")];
    let groups = names(link).map_err(fault)?;
    for group in &groups {
        let found = is_there(group).map_err(fault)?;
        told.push(format!("role {group}: {}", if found.is_some() { "existed" } else { "created" }));
    }
    let [sensors, others @ ..] = &groups;
    for FleetRole { name, group } in members {
        let found = is_there(name).map_err(fault)?;
        let is_of = |groups: &[String]| {
            let query = format!("{MEMBERS} WHERE r.rolname = ?1 AND g.rolname = ANY(?2) LIMIT 1");
            let groups = groups.iter().map(String::as_str).collect();
            link.one(&query, &[name.into(), groups], |row| row.get::<String>(0)).map_err(fault)
        };
        if *group != RoleGroup::Sensor {
            if is_of(std::slice::from_ref(sensors))?.is_some() {
                return Err(FleetError::IsSensor(name.clone(), group.word()));
            }
        } else if found == Some(true) {
            return Err(FleetError::Mighty(name.clone()));
        } else if let Some(other) = is_of(others)? {
            return Err(FleetError::Reads(name.clone(), other));
        }
        let of = &groups[*group as usize];
        told.push(match found {
            Some(_) => format!("role {name}: existed, member of {of}"),
            None => format!(
                "role {name}: created, member of {of}, without a password: in psql, \\password {}",
                quoted(name)
            ),
        });
    }
    Ok(told)
}

/// The names of the groups' roles in this database, in the order of [`RoleGroup::ALL`].
pub(super) fn names(link: &DatabaseConnection) -> Result<[String; 5], DatabaseError> {
    let query = format!("SELECT {}", RoleGroup::ALL.map(RoleGroup::name).join(", "));
    let read = |row: &QueryRow<'_>| Ok([row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?, row.get(4)?]);
    link.one(&query, &[], read)?.ok_or(DatabaseError::Column(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_written_so_that_they_stay_names() {
        assert_eq!(quoted("a\"; DROP ROLE b; --"), "\"a\"\"; DROP ROLE b; --\"");
        assert_eq!(literal("a'\\b"), "E'a''\\\\b'");
        for name in ["", "pg_x", "bannerwall_x_admin", "a\nb", "$bannerwall$", &"x".repeat(64)] {
            assert!(check_name(name).is_err(), "{name}");
        }
        assert!(check_name("gw-1.example").is_ok());
    }
}
