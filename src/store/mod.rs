//! What must survive or be shared: the documents that were published here, with their history. Embedded, or a server.
