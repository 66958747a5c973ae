// An OpenID Connect provider on a free port of loopback. It prints its issuer URL, then
// serves until its standard input ends: node server.mjs
//
// Environment:
//   GROUPS    groups of every account, separated by commas (default: staff)
//   CLIENT    redirect URL of the client "ferrule", with which people log in; its secret is
//             "a secret of the client"
//
// Agents register themselves. Any login and any password will do: the login becomes the
// subject. The two pages, login and consent, are plain forms.
import { createServer } from 'node:http';
import { generateKeyPairSync, randomBytes } from 'node:crypto';
import Provider from 'oidc-provider';

const server = createServer();
server.listen(0, '127.0.0.1', () => {
  const issuer = `http://127.0.0.1:${server.address().port}`;
  const groups = (process.env.GROUPS ?? 'staff').split(',');
  const key = generateKeyPairSync('rsa', { modulusLength: 2048 }).privateKey.export({ format: 'jwk' });
  const clients = [];
  if (process.env.CLIENT) {
    clients.push({
      client_id: 'ferrule', client_secret: 'a secret of the client', redirect_uris: [process.env.CLIENT],
      grant_types: ['authorization_code'], response_types: ['code'],
    });
  }
  const scopes = ['openid', 'offline_access', 'read', 'change', 'endanger', 'metrics', 'admin'];
  const provider = new Provider(issuer, {
    clients,
    scopes,
    claims: { openid: ['sub', 'groups', 'name'] },
    conformIdTokenClaims: false, // the groups are in the ID token itself
    jwks: { keys: [{ ...key, use: 'sig', alg: 'RS256', kid: 'test' }] },
    cookies: { keys: [randomBytes(16).toString('hex')] },
    pkce: { required: () => true },
    findAccount: (_, sub) => ({ accountId: sub, claims: () => ({ sub, groups, name: `${sub} of the test` }) }),
    extraTokenClaims: () => ({ groups }),
    features: {
      devInteractions: { enabled: true },
      registration: { enabled: true },
      revocation: { enabled: true },
      resourceIndicators: {
        enabled: true,
        getResourceServerInfo: (_, resource) => ({
          scope: scopes.slice(2).join(' '), audience: resource, accessTokenFormat: 'jwt', accessTokenTTL: 3600, jwt: { sign: { alg: 'RS256' } },
        }),
        useGrantedResource: () => true,
      },
    },
  });
  server.on('request', provider.callback());
  console.log(issuer);
});
process.stdin.resume().on('end', () => process.exit());
