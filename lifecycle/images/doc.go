// Package images pulls the images of a pod with a CRI runtime, with the
// credentials that the pod may use. The kubelet's counterparts are its image
// manager, its keyring of registry credentials and its pull manager.
//
// # What it does
//
// [Manager.Ensure] decides by pull policy whether to pull. It finds the
// credentials for the image in the pod's pull secrets and from each
// [CredentialProvider], waits for the limits on pulls, pulls, and returns the
// image with a lease that protects it from garbage collection. [Keyring] is a
// pure part that can be used alone.
//
// # What you supply
//
// The runtime's two calls, which cri.ImageManagerService implements. Everything
// else in [Config] is optional: the source of Secrets (podsource.Store),
// credential providers, limits, leases, and a store of records (agent/state). A
// provider that reads the configuration of a container tool can use a
// [Keyring].
//
// # What it guarantees
//
//  1. Reasons and messages are the kubelet's. A failure is an [*Error]; the end
//     of the context is not, and starts no back-off.
//  2. One image is pulled once for all callers that request it at the same time
//     with the same credentials. A caller that stops waiting does not affect
//     the others; the last one cancels the pull and waits until it has ended.
//  3. Credentials are never in logs, events, errors or records. A [Credential]
//     prints as a placeholder, also within other values. If a runtime repeats
//     one in its answer, or a provider in its error, it is removed. Errors
//     about Secrets do not quote their contents.
//  4. Credentials are tried in a fixed order: longest location first, then in
//     the order of the pod's Secrets, then those of providers. An image for
//     which there are credentials is not pulled without.
//  5. An image that was pulled only with another pod's credentials is pulled
//     again, unless [Policy.Verify] says otherwise (KEP-2535). An image whose
//     pull was interrupted by a crash, or whose pull has an unknown result,
//     counts as pulled by this Manager until credentials pull it.
//  6. After a failed pull the next one waits for its back-off. One pull that
//     several containers of a pod waited for counts once.
//  7. A pull without progress is cancelled.
//
// # Goroutines and locking
//
// A pull has two goroutines; the second one watches its progress. Both end before
// the last Ensure that waits for it returns. No lock is held while the runtime,
// the event recorder or the observer is called.
//
// # Differences from the kubelet
//
//   - A pull above the rate limit waits; the kubelet fails it, and the pod
//     backs off.
//   - Changed Secrets of a pod are tried at once, not after the back-off of the
//     failed ones. Credentials of providers wait for the back-off.
//   - The kubelet logs the error of a credential provider; here it is in the
//     message of the pull if that fails. Providers are called only if the pod's
//     Secrets and the record of the image's pull give no access.
//   - Concurrent pulls of the same image with the same credentials are one
//     pull.
//   - A pull without progress is cancelled. The CRI does not report progress,
//     see [Config.Progress].
//   - A malformed pull secret is an error that names it, without its contents,
//     when it is needed; an image that is present and needs no credentials
//     starts without it.
//   - The kubelet reads a pod's pull secrets in every sync, and records an
//     event about missing ones each time; this package reads them when an image
//     needs a pull or a check.
//   - Identity and registry tokens of a configuration are used.
//   - The size of a pulled image comes from the ImageStatus call that the
//     result needs; if that call fails the reason is ImageInspectError.
//   - A [CredentialProvider] is code, not a program. Its credentials are
//     recorded as those of the kubelet's plugins: for all pods of the node, or
//     for the pod's service account if the provider requested a token of it.
//
// # Testing your code with it
//
// fakecri.Node implements both calls: its Config has images with delays, errors
// and passwords.
package images
