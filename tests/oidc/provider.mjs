// The OpenID provider of the tests, on loopback: client credentials, and logins of whoever enters a name. Its keys are new at every start, so that a
// restart on the same port is a key rotation. It ends when its standard input ends.
//
//   node provider.mjs [PORT [REDIRECT_URI]]        prints "listening PORT"
import { createServer } from 'node:http';
import { generateKeyPairSync, randomBytes } from 'node:crypto';
import { Provider } from 'oidc-provider';

const key = (alg, type, options) => {
  const { privateKey } = generateKeyPairSync(type, options);
  return { ...privateKey.export({ format: 'jwk' }), alg, use: 'sig', kid: `${alg}-${randomBytes(6).toString('hex')}` };
};

const client = (client_id) => ({
  client_id,
  client_secret: `${client_id}-secret`,
  grant_types: ['client_credentials'],
  redirect_uris: [],
  response_types: [],
});

const keys = [
  key('RS256', 'rsa', { modulusLength: 2048 }),
  key('ES256', 'ec', { namedCurve: 'P-256' }),
  key('EdDSA', 'ed25519', {}),
];

// The resource that a client requests determines its token: urn:gatepost:RS256, urn:gatepost:opaque, …
const resourceServer = (_, resource) => {
  const format = resource.split(':').pop();
  return {
    scope: 'read write',
    audience: format === 'elsewhere' ? 'elsewhere' : 'gatepost',
    accessTokenTTL: 600,
    ...(format === 'opaque'
      ? { accessTokenFormat: 'opaque' }
      : { accessTokenFormat: 'jwt', jwt: { sign: { alg: format === 'elsewhere' ? 'ES256' : format } } }),
  };
};

// The console, if it has a redirect URI. Members of the group sre are those whose name begins with sre-.
const redirectUri = process.argv[3];
const consoles = redirectUri
  ? [{ ...client('console'), grant_types: ['authorization_code'], redirect_uris: [redirectUri], response_types: ['code'] }]
  : [];

const server = createServer();
server.listen(Number(process.argv[2] ?? 0), '127.0.0.1', () => {
  const { port } = server.address();
  const provider = new Provider(`http://127.0.0.1:${port}`, {
    clients: [client('app-1'), client('gateway'), ...consoles],
    findAccount: (_, id) => ({ accountId: id, claims: () => ({ sub: id }) }),
    extraTokenClaims: (_, token) => (token.accountId?.startsWith('sre-') ? { groups: ['sre'] } : undefined),
    pkce: { required: () => true },
    jwks: { keys },
    scopes: ['read', 'write'],
    features: {
      clientCredentials: { enabled: true },
      devInteractions: { enabled: Boolean(redirectUri) },
      introspection: { enabled: true, allowedPolicy: () => true },
      revocation: { enabled: true },
      resourceIndicators: { enabled: true, useGrantedResource: () => true, defaultResource: () => 'urn:gatepost:ES256', getResourceServerInfo: resourceServer },
    },
  });
  server.on('request', provider.callback());
  console.log(`listening ${port}`);
});

process.stdin.on('end', () => process.exit(0)).resume();
