/// The letters used in every shape comment and as variable names.
///
///   C  clients in hand (rows of a block)      N  clients in all        E  edges
///   P  row length: parameters and buffers     Q  trained or sent coordinates
///   B  batch size                             S  samples               K  classes
///   D  features of a sample                   L  local steps
///   R  rank of a factorisation                t  round, counted from 1
///
/// An index is the small letter: client c of C, batch element b of B. A shape ends a declaration:
/// `Tensor trained;  // [C, P]`.
#pragma once
