//! The version of a database's schema, read without changing the database.

use super::connection_settings::ConnectionSettings;
use crate::store::{database_url::DatabaseUrl, document_sql};
use std::path::Path;

/// Returns the version of the schema, if there is one.
pub(in crate::store) async fn inspect_database(
    address: &DatabaseUrl,
    authorities: Option<&Path>,
) -> Result<Option<i64>, String> {
    let ConnectionSettings { config, tls } = ConnectionSettings::new(address, authorities)?;
    let text = |error: tokio_postgres::Error| super::DatabaseError::from(error).to_string();
    let (client, connection) = config.connect(tls).await.map_err(text)?;
    // The task ends with the client.
    let connection = tokio::spawn(connection);
    let version = async {
        let exists = client.query_one("select to_regclass('gatepost_state') is not null", &[]).await?;
        if !exists.try_get::<_, bool>(0)? {
            return Ok(None);
        }
        client.query_one(document_sql::SELECT_VERSION, &[]).await?.try_get(0).map(Some)
    };
    let version = version.await.map_err(text);
    drop(client);
    connection.abort();
    version
}
