//! Values for statements, and values from rows.

use std::borrow::Cow;
use std::error::Error;
use std::net::IpAddr;

use bytes::BytesMut;
use rusqlite::types::{ToSqlOutput, ValueRef};
use serde::{Deserialize, Serialize};
use tokio_postgres::types::{FromSql, IsNull, ToSql, Type, to_sql_checked};

use super::error::{DatabaseError, Result};

/// Replacement of U+0000, which PostgreSQL's texts cannot hold: its symbol.
const NUL: &str = "\u{2400}";

/// Returns a text as PostgreSQL stores it.
pub(super) fn without_nul(text: &str) -> Cow<'_, str> {
    if text.contains('\0') { Cow::Owned(text.replace('\0', NUL)) } else { Cow::Borrowed(text) }
}

/// A value for a parameter.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum SqlParameter<'a> {
    /// None.
    Null,
    /// A number.
    Integer(i64),
    /// A text.
    #[serde(borrow)]
    Text(Cow<'a, str>),
    /// Bytes.
    Octets(Cow<'a, [u8]>),
    /// Several values, for which SQLite has no type.
    Many(Vec<SqlParameter<'a>>),
}

/// Values for parameters, in their order.
macro_rules! values {
    ($($value:expr),* $(,)?) => { &[$(crate::database::values::SqlParameter::from($value)),*] };
}
pub(crate) use values;

impl SqlParameter<'_> {
    /// Returns the same value, which borrows from this one.
    pub(super) fn borrowed(&self) -> SqlParameter<'_> {
        match self {
            Self::Null => SqlParameter::Null,
            Self::Integer(number) => SqlParameter::Integer(*number),
            Self::Text(text) => SqlParameter::Text(Cow::Borrowed(text)),
            Self::Octets(octets) => SqlParameter::Octets(Cow::Borrowed(octets)),
            Self::Many(many) => SqlParameter::Many(many.iter().map(SqlParameter::borrowed).collect()),
        }
    }

    /// Returns an owned copy.
    pub(super) fn to_owned(&self) -> SqlParameter<'static> {
        match self {
            Self::Null => SqlParameter::Null,
            Self::Integer(number) => SqlParameter::Integer(*number),
            Self::Text(text) => SqlParameter::Text(Cow::Owned(text.clone().into_owned())),
            Self::Octets(octets) => SqlParameter::Octets(Cow::Owned(octets.clone().into_owned())),
            Self::Many(many) => SqlParameter::Many(many.iter().map(Self::to_owned).collect()),
        }
    }
}

impl<'a> From<&SqlParameter<'a>> for SqlParameter<'a> {
    fn from(value: &SqlParameter<'a>) -> Self {
        value.clone()
    }
}

impl From<i64> for SqlParameter<'_> {
    fn from(number: i64) -> Self {
        Self::Integer(number)
    }
}

impl From<i32> for SqlParameter<'_> {
    fn from(number: i32) -> Self {
        Self::Integer(number.into())
    }
}

impl From<u16> for SqlParameter<'_> {
    fn from(number: u16) -> Self {
        Self::Integer(number.into())
    }
}

impl<'a> From<&'a str> for SqlParameter<'a> {
    fn from(text: &'a str) -> Self {
        Self::Text(Cow::Borrowed(text))
    }
}

impl<'a> From<&'a String> for SqlParameter<'a> {
    fn from(text: &'a String) -> Self {
        Self::Text(Cow::Borrowed(text))
    }
}

impl From<String> for SqlParameter<'_> {
    fn from(text: String) -> Self {
        Self::Text(Cow::Owned(text))
    }
}

impl From<Vec<u8>> for SqlParameter<'_> {
    fn from(octets: Vec<u8>) -> Self {
        Self::Octets(Cow::Owned(octets))
    }
}

/// The bytes of an address.
impl From<IpAddr> for SqlParameter<'_> {
    fn from(address: IpAddr) -> Self {
        match address {
            IpAddr::V4(address) => address.octets().to_vec().into(),
            IpAddr::V6(address) => address.octets().to_vec().into(),
        }
    }
}

impl<'a> From<&'a [u8]> for SqlParameter<'a> {
    fn from(octets: &'a [u8]) -> Self {
        Self::Octets(Cow::Borrowed(octets))
    }
}

impl<'a, T> FromIterator<T> for SqlParameter<'a>
where
    SqlParameter<'a>: From<T>,
{
    fn from_iter<I: IntoIterator<Item = T>>(values: I) -> Self {
        Self::Many(values.into_iter().map(Self::from).collect())
    }
}

impl<'a, T> From<Option<T>> for SqlParameter<'a>
where
    SqlParameter<'a>: From<T>,
{
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Null, Self::from)
    }
}

impl rusqlite::ToSql for SqlParameter<'_> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(match self {
            Self::Null => ValueRef::Null,
            Self::Integer(number) => ValueRef::Integer(*number),
            Self::Text(text) => ValueRef::Text(text.as_bytes()),
            Self::Octets(octets) => ValueRef::Blob(octets),
            Self::Many(_) => return Err(rusqlite::Error::ToSqlConversionFailure("a list".into())),
        }))
    }
}

impl ToSql for SqlParameter<'_> {
    fn to_sql(
        &self,
        kind: &Type,
        out: &mut BytesMut,
    ) -> std::result::Result<IsNull, Box<dyn Error + Sync + Send>> {
        match self {
            Self::Null => Ok(IsNull::Yes),
            Self::Integer(number) if *kind == Type::INT4 => i32::try_from(*number)?.to_sql(kind, out),
            Self::Integer(number) => number.to_sql(&Type::INT8, out),
            Self::Text(text) => without_nul(text).as_ref().to_sql(kind, out),
            Self::Octets(octets) => octets.as_ref().to_sql(kind, out),
            Self::Many(many) => many.to_sql(kind, out),
        }
    }

    // The statements define the parameters' types, and tests run each statement on both databases.
    fn accepts(_kind: &Type) -> bool {
        true
    }

    to_sql_checked!();
}

/// A value in a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum SqlValue<'a> {
    /// None.
    Null,
    /// A number, or a Boolean as 0 or 1.
    Integer(i64),
    /// A text.
    Text(&'a str),
    /// Bytes.
    Octets(&'a [u8]),
}

impl<'a> FromSql<'a> for SqlValue<'a> {
    fn from_sql(kind: &Type, raw: &'a [u8]) -> std::result::Result<Self, Box<dyn Error + Sync + Send>> {
        Ok(match *kind {
            Type::INT8 => Self::Integer(i64::from_sql(kind, raw)?),
            Type::INT4 => Self::Integer(i32::from_sql(kind, raw)?.into()),
            Type::BOOL => Self::Integer(bool::from_sql(kind, raw)?.into()),
            Type::BYTEA => Self::Octets(raw),
            _ => Self::Text(<&str>::from_sql(kind, raw)?),
        })
    }

    fn from_sql_null(_kind: &Type) -> std::result::Result<Self, Box<dyn Error + Sync + Send>> {
        Ok(Self::Null)
    }

    fn accepts(kind: &Type) -> bool {
        matches!(*kind, Type::INT8 | Type::INT4 | Type::BOOL | Type::BYTEA | Type::TEXT | Type::VARCHAR)
    }
}

/// A row of an answer.
pub enum QueryRow<'a> {
    /// A row of a file.
    Sqlite(&'a rusqlite::Row<'a>),
    /// A row of a server.
    Postgres(&'a tokio_postgres::Row),
    /// A row of a server, as a helper process sends it.
    Process(&'a [u8]),
}

impl QueryRow<'_> {
    /// Returns the value of a column, counted from 0.
    pub fn get<T: FromSqlValue>(&self, column: usize) -> Result<T> {
        let cell = match self {
            Self::Sqlite(row) => match row.get_ref(column)? {
                ValueRef::Null => SqlValue::Null,
                ValueRef::Integer(number) => SqlValue::Integer(number),
                ValueRef::Text(text) => {
                    SqlValue::Text(std::str::from_utf8(text).map_err(|_| DatabaseError::Column(column))?)
                }
                ValueRef::Blob(octets) => SqlValue::Octets(octets),
                ValueRef::Real(_) => return Err(DatabaseError::Column(column)),
            },
            Self::Postgres(row) => row.try_get(column)?,
            Self::Process(row) => cell_of_process(row, column).ok_or(DatabaseError::Column(column))?,
        };
        T::from_cell(cell).ok_or(DatabaseError::Column(column))
    }
}

/// A type that can be read from a column.
pub trait FromSqlValue: Sized {
    /// Returns the value, if it has this type.
    fn from_cell(cell: SqlValue<'_>) -> Option<Self>;
}

impl FromSqlValue for i64 {
    fn from_cell(cell: SqlValue<'_>) -> Option<Self> {
        if let SqlValue::Integer(number) = cell { Some(number) } else { None }
    }
}

impl FromSqlValue for i32 {
    fn from_cell(cell: SqlValue<'_>) -> Option<Self> {
        i64::from_cell(cell)?.try_into().ok()
    }
}

impl FromSqlValue for u16 {
    fn from_cell(cell: SqlValue<'_>) -> Option<Self> {
        i64::from_cell(cell)?.try_into().ok()
    }
}

impl FromSqlValue for bool {
    fn from_cell(cell: SqlValue<'_>) -> Option<Self> {
        i64::from_cell(cell).map(|number| number != 0)
    }
}

impl FromSqlValue for String {
    fn from_cell(cell: SqlValue<'_>) -> Option<Self> {
        match cell {
            SqlValue::Text(text) => Some(text.to_owned()),
            // A port is counted as a text, like any other field.
            SqlValue::Integer(number) => Some(number.to_string()),
            SqlValue::Null | SqlValue::Octets(_) => None,
        }
    }
}

/// The bytes of an address.
impl FromSqlValue for IpAddr {
    fn from_cell(cell: SqlValue<'_>) -> Option<Self> {
        let SqlValue::Octets(octets) = cell else { return None };
        let four = <[u8; 4]>::try_from(octets).map(Self::from);
        four.or_else(|_| <[u8; 16]>::try_from(octets).map(Self::from)).ok()
    }
}

impl FromSqlValue for Vec<u8> {
    fn from_cell(cell: SqlValue<'_>) -> Option<Self> {
        if let SqlValue::Octets(octets) = cell { Some(octets.to_vec()) } else { None }
    }
}

impl<T: FromSqlValue> FromSqlValue for Option<T> {
    fn from_cell(cell: SqlValue<'_>) -> Option<Self> {
        if let SqlValue::Null = cell { Some(None) } else { T::from_cell(cell).map(Some) }
    }
}

/// Returns the value in a column of a row, counted from 0. It reads no more than it has to, so a row
/// allocates no memory.
pub(super) fn cell_of_process(mut row: &[u8], column: usize) -> Option<SqlValue<'_>> {
    for _ in 0..column {
        row = postcard::take_from_bytes::<SqlValue<'_>>(row).ok()?.1;
    }
    Some(postcard::take_from_bytes(row).ok()?.0)
}
