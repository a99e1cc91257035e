// Package podsource compares podmanager/podsource with the kubelet's sources of static
// pods: its folder and its URL, what it decodes, its defaults, and the API's validation
// with the options that the kubelet uses.
//
// A world is a folder of up to three files or the answers of a server, over up to four
// steps, one to ten seconds apart, in which files are edited, renamed, cut, written in
// another form, removed and added, and the folder or the server is away. Files can be
// symbolic links, and folders, pipes and links to nothing can stand among them. Pods
// come from the API's types with one thing or two that are broken: values out of range,
// wrong types, unknown and repeated fields, fields added anywhere in the type with any
// value, list items given twice. Both sides run in a synctest bubble on folders of their
// own.
//
// The facts are, for each document, whether it can be decoded, the fields that are wrong
// by their paths, images that cannot be pulled, and references to the API; and for each
// pod that the source gives, every field, whether its UID and hash have changed, and
// when it was first seen. What ours must have is computed from what the kubelet makes of
// each document, whether it accepts it or not: see model. The test also checks how many
// files ours reads, and that its observer hears of each problem once.
//
// Where the two sides write the path of one problem differently, it is ours: see
// fieldOf. Types and texts of problems are not compared. With a field that strict
// decoding refuses, a document is compared as refused or accepted only. The feature
// gate PreventStaticPodAPIReferences is off, so that the rest of a pod with a reference
// is compared; the reference is a fact of its own. Two documents of one name or UID are
// in the first step only. Left out are the watch of the folder, files above 1 MiB,
// ConfigMaps and Secrets in files, and amounts such as 9e9999 that keep the kubelet busy
// for minutes.
package podsource
