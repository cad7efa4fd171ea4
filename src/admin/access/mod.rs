//! Who may use the admin listener, and as what: operators with roles, their sessions in browsers, and their logins by API
//! key or at an OpenID provider. An operator is a caller of the gateway: the same credentials, judged by the same
//! authenticators. Without `admin.access`, whoever reaches the listener on loopback is an operator without a name.

mod access_config;
mod login_at_provider;
mod login_pages;
mod operator;
mod operator_access;
mod page_guard;
mod plain_pages;
mod request_origin;
mod session_cookie;
mod session_table;

pub use access_config::{AdminAccessConfig, LoginConfig, OperatorRole, RoleRule};
pub use operator::{Operator, OperatorCredential};
pub use operator_access::{OperatorAccess, OperatorAccessSettings, PreparedAccess};
pub use page_guard::{CSRF_FIELD, CsrfToken};
pub use plain_pages::{error_page, page_response};

pub(super) use login_pages::{login_router, logout_router};
pub(super) use page_guard::{ApiGuard, recognize_operator, require_operator_page, require_role_for_api};
