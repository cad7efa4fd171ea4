// The OpenID provider of the tests: only client credentials, on loopback. Its keys are new at every start, so that a
// restart on the same port is a key rotation. It ends when its standard input ends.
//
//   node provider.mjs [PORT]        prints "listening PORT"
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

const server = createServer();
server.listen(Number(process.argv[2] ?? 0), '127.0.0.1', () => {
  const { port } = server.address();
  const provider = new Provider(`http://127.0.0.1:${port}`, {
    clients: [client('app-1'), client('gateway')],
    jwks: { keys },
    scopes: ['read', 'write'],
    features: {
      clientCredentials: { enabled: true },
      devInteractions: { enabled: false },
      introspection: { enabled: true, allowedPolicy: () => true },
      revocation: { enabled: true },
      resourceIndicators: { enabled: true, defaultResource: () => 'urn:gatepost:ES256', getResourceServerInfo: resourceServer },
    },
  });
  server.on('request', provider.callback());
  console.log(`listening ${port}`);
});

process.stdin.on('end', () => process.exit(0)).resume();
