// Package podsource compares podmanager/podsource with the kubelet's sources of static pods:
// its directory and its URL, the decoding, the defaults, and the API's validation with the
// options that the kubelet uses.
//
// A world is a directory of up to three files or the responses of a server, over up to four
// steps, one to ten seconds apart. Files are edited, renamed, truncated, rewritten in another
// form, removed and added, and the directory or the server can be missing. Files can be
// symbolic links, and the directory can contain directories, pipes and dangling links. Pods
// are generated from the API's types with one or two mistakes: values out of range, wrong
// types, unknown and repeated fields, fields added anywhere in the type with any value,
// duplicate list items. Both sides run in a synctest bubble with separate directories.
//
// The facts of each document are: whether it can be decoded, the invalid fields by path,
// images that cannot be pulled, and references to API objects. The facts of each pod from the
// source are: every field, whether its UID and hash have changed, and when it was first seen.
// Our expected value is computed from the kubelet's result for each document, whether the
// kubelet accepts the document or not: see model. The test also checks how many files our
// source reads, and that its observer receives each problem once.
//
// If the two sides use different paths for the same problem, the fact has our path: see
// fieldOf. Types and texts of problems are not compared. A document with a field that strict
// decoding rejects is compared only as accepted or rejected. The feature gate
// PreventStaticPodAPIReferences is off, so that the other fields of a pod with a reference
// are compared; the reference is a separate fact. Two documents with the same name or UID
// occur in the first step only. Not compared: the watch of the directory, files above 1 MiB,
// ConfigMaps and Secrets in files, and amounts such as 9e9999, for which the kubelet needs
// minutes.
package podsource
