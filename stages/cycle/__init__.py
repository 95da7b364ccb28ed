"""One turn of the loop: collect, distill, train, eval, deploy, each as it would be run by hand."""
