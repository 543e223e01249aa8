/* Turns weights into levels of the scale of colours. */
#include "picture/draw/figure.h"

/* Puts `count` shades of a scale first, and the looks behind them. */
static void fill_in(mha__colour palette[MHA__PALETTE], const mha__colour scale[MHA__COLOURS], int count)
{
    palette[MHA__LEVELS] = scale[MHA__COLOURS - 1];
    for (int i = 0; i < count; i++)
        palette[i] = scale[(i * (MHA__COLOURS - 1) + (count - 1) / 2) / (count - 1)];
    palette[MHA__HIDDEN_GROUND] = (mha__colour){232, 232, 232};
    palette[MHA__HIDDEN_LINE] = (mha__colour){196, 196, 196};
    palette[MHA__BROKEN] = (mha__colour){214, 0, 110};
    palette[MHA__PAPER] = (mha__colour){255, 255, 255};
    palette[MHA__MARK] = (mha__colour){179, 38, 30};
}

void mha__palette(mha__colour palette[MHA__PALETTE])
{
    mha__colour scale[MHA__COLOURS];
    mha__colours_sequential(scale);
    fill_in(palette, scale, MHA__LEVELS);
}

void mha__palette_of_signs(mha__colour palette[MHA__PALETTE])
{
    mha__colour scale[MHA__COLOURS];
    mha__colours_diverging(scale);
    fill_in(palette, scale, MHA__SHADES);
}

double mha__pooled(const mha__head *head, size_t row, size_t column, size_t rows, size_t columns)
{
    double largest = MHA__HIDDEN; /* below every weight */
    for (size_t r = row * rows; r < (row + 1) * rows && r < head->rows; r++)
        for (size_t c = column * columns; c < (column + 1) * columns && c < head->columns; c++) {
            const double weight = head->weights[r * head->columns + c];
            if (isnan(weight))
                return weight;
            largest = fmax(largest, weight);
        }
    return largest;
}

mha__shading mha__shading_of(const mha__picture *picture)
{
    double largest = 0;
    for (size_t l = 0; l < picture->layer_count; l++)
        for (size_t i = 0; i < picture->layers[l].head_count; i++) {
            const mha__head *head = &picture->layers[l].heads[i];
            for (size_t c = 0; c < head->rows * head->columns; c++)
                if (isfinite(head->weights[c]) && head->weights[c] > largest)
                    largest = head->weights[c];
        }
    return (mha__shading){.largest = largest > 0 ? largest : 1, .logarithmic = picture->logarithmic};
}

int mha__level(const mha__shading *shading, double weight)
{
    if (mha__is_hidden(weight))
        return MHA__HIDDEN_GROUND;
    if (!isfinite(weight))
        return MHA__BROKEN;
    double share = weight / shading->largest;
    if (shading->logarithmic)
        share = share > 0 ? 1 + log10(share) / MHA__DECADES : 0;
    return (int)lround((MHA__LEVELS - 1) * fmin(fmax(share, 0), 1));
}

double mha__level_weight(const mha__shading *shading, double level)
{
    const double share = level / (MHA__LEVELS - 1);
    return shading->largest * (shading->logarithmic ? pow(10, MHA__DECADES * (share - 1)) : share);
}
